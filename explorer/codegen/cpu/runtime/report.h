/* Who waits for what, after a launch that returned 1. */
const char *ex_report(void) {
    static char text[EX_HANGS_MAX * 256];
    size_t used = 0;
    for (int i = 0; i < atomic_load(&ex_aborted) && i < EX_HANGS_MAX; i++) {
        const int site = ex_hang[i].site;
        used += snprintf(text + used, sizeof text - used,
                         "%sblock %d role %s warp %d waits at %s.%s[%u] parity %u, %u arrivals pending",
                         i ? "; " : "", ex_hang[i].block, ex_sites[site].role, ex_hang[i].warp,
                         ex_sites[site].pipeline, ex_sites[site].side, ex_hang[i].slot, ex_hang[i].parity,
                         ex_hang[i].pending);
        if (used >= sizeof text) break;
    }
    return text;
}
