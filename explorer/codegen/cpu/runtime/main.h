/* The main function of a stand-alone kernel. */
static void *ex_read(const char *folder, const char *name, const char *end, size_t bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, end);
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    void *data = malloc(bytes + 1);
    const size_t got = data ? fread(data, 1, bytes, file) : 0;
    fclose(file);
    if (got == bytes) return data;
    fprintf(stderr, "%s: %zu bytes, expected %zu\n", path, got, bytes);
    exit(2);
}
static double ex_error(int kind, size_t count, const void *out, const void *ref) {
    double off = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        const double want = ex_value(kind, ref, i), is = ex_value(kind, out, i) - want;
        off += is * is, size += want * want;
    }
    return size > 0 ? sqrt(off / size) : sqrt(off);
}
int main(int argc, char **argv) {
    void *data[EX_TENSORS], *reference[EX_TENSORS];
    const char *folder = argc > 1 ? argv[1] : ".";
    for (int i = 0; i < EX_TENSORS; i++) {
        const size_t bytes = ex_tensor[i].count * ex_tensor[i].bytes;
        data[i] = ex_read(folder, ex_tensor[i].name, "bin", bytes);
        reference[i] = ex_read(folder, ex_tensor[i].name, "ref", bytes);
        if (!data[i]) data[i] = malloc(bytes + 1);
    }
    for (int repeat = 0; repeat < (argc > 2 ? atoi(argv[2]) : 1); repeat++) {
        for (int i = 0; i < EX_TENSORS; i++)
            if (reference[i]) memset(data[i], 0xff, ex_tensor[i].count * ex_tensor[i].bytes);
        const int rc = ex_run(data);
        if (rc) return fprintf(stderr, "rc %d: %s\n", rc, rc == 1 ? ex_report() : "launch"), 1;
        for (int i = 0; i < EX_TENSORS; i++) {
            if (!reference[i]) continue;
            const double error = ex_error(ex_kind[i], ex_tensor[i].count, data[i], reference[i]);
            if (!(error <= ex_tolerance)) return fprintf(stderr, "%s: %g\n", ex_tensor[i].name, error), 1;
        }
    }
    puts("ok");
    return ex_close();
}
