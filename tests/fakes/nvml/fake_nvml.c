/* A libnvidia-ml.so.1 without a GPU, for tests that go through the real nvidia-ml-py.
 *
 * It answers from a text file named by FAKE_NVML_STATE, read again whenever it changes, so a test moves the hardware
 * while the sampler runs. Lines are "key value"; keys are looked up from the narrowest to the widest:
 *
 *     gpu.3.nvmlDeviceGetPowerUsage.rc 3     this call on this GPU returns code 3
 *     gpu.3.rc 15                            every call on this GPU returns code 15
 *     nvmlDeviceGetPowerUsage.rc 3           this call on every GPU
 *     gpu.3.nvmlDeviceGetPowerUsage.hang 1   the call does not return while the line stands
 *     gpu.3.nvmlDeviceGetPowerUsage.ms 500   the call takes half a second
 *     gpu.3.power_mw 250000                  a value; without "gpu.3." for all GPUs
 *     gpu.3.field.197 12345                  a value of nvmlDeviceGetFieldValues; "field.197.rc 3", "field.197.type 1"
 *     gpu.3.gpm.2 55.5                       a GPM metric
 *     gpu.3.procs 101:5000,102:600           pid:MiB
 *     gpu.3.p2p.5.1 2                        peer status of GPU 3 to 5 for writing (.0: reading); "p2p 3" for all pairs
 *     gpu.3.topology.5 50                    their nearest common ancestor; "topology 50" for all pairs
 *     events 7 / event.7 3 8 79              number of events so far; GPU, type and data of each
 *
 * GENERATION leaves out what drivers of that branch do not export. Declarations are our own; the structs are compared
 * with the binding's by a test.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <pthread.h>

#ifndef GENERATION
#define GENERATION 580
#endif

typedef int rc_t;
typedef struct fake_device { int index; } *device_t;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMED_OUT = 10, NO_GPU = 28 };

static struct fake_device devices[64], instances[64];
static int initialized;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- state ---------------------------------------------------------------------------------------------------- */

enum { SLOTS = 4096 };
static struct { char key[64]; char value[448]; } table[SLOTS];
static struct timespec read_at;
static ino_t read_inode;

static unsigned hash(const char *key) {
    unsigned h = 2166136261u;
    while (*key) h = (h ^ (unsigned char)*key++) * 16777619u;
    return h & (SLOTS - 1);
}

static void load(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    static struct timespec looked;
    struct timespec time_now;
    struct stat now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time_now);
    if (time_now.tv_sec == looked.tv_sec && time_now.tv_nsec == looked.tv_nsec) return;     /* once in some milliseconds */
    looked = time_now;
    if (!path || stat(path, &now)) return;
    if (now.st_ino == read_inode && now.st_mtim.tv_sec == read_at.tv_sec && now.st_mtim.tv_nsec == read_at.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    memset(table, 0, sizeof table);
    char line[600];
    while (fgets(line, sizeof line, file)) {
        char *value = strchr(line, ' ');
        if (!value || line[0] == '#') continue;
        *value++ = 0;
        value[strcspn(value, "\n")] = 0;
        unsigned slot = hash(line);
        while (table[slot].key[0] && strcmp(table[slot].key, line)) slot = (slot + 1) & (SLOTS - 1);
        memcpy(table[slot].key, line, strnlen(line, sizeof table[slot].key - 1) + 0);
        snprintf(table[slot].value, sizeof table[slot].value, "%s", value);
    }
    fclose(file);
    read_at = now.st_mtim;
    read_inode = now.st_ino;
}

static const char *find(const char *key) {
    for (unsigned slot = hash(key); table[slot].key[0]; slot = (slot + 1) & (SLOTS - 1))
        if (!strcmp(table[slot].key, key)) return table[slot].value;
    return NULL;
}

/* Copies the value out, so that a reload by another thread cannot pull it away. */
static int text(int gpu, const char *key, char *out, size_t size) {
    char narrow[64];
    pthread_mutex_lock(&lock);
    load();
    const char *value = NULL;
    if (gpu >= 0) {
        snprintf(narrow, sizeof narrow, "gpu.%d.%s", gpu, key);
        value = find(narrow);
    }
    if (!value) value = find(key);
    if (value) snprintf(out, size, "%s", value);
    pthread_mutex_unlock(&lock);
    return value != NULL;
}

static double number(int gpu, const char *key, double otherwise) {
    char value[448];
    return text(gpu, key, value, sizeof value) ? strtod(value, NULL) : otherwise;
}

static double number2(int gpu, const char *a, const char *b, double otherwise) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", a, b);
    return number(gpu, key, otherwise);
}

/* What every call does first: hang, be slow, or fail, if the state says so. */
static rc_t enter(const char *call, int gpu) {
    while (number2(gpu, call, "hang", 0) != 0) usleep(10000);
    double ms = number2(gpu, call, "ms", 0);
    if (ms > 0) usleep((useconds_t)(ms * 1000));
    double code = number2(gpu, call, "rc", 0);
    if (code == 0 && gpu >= 0) {
        char key[64];
        snprintf(key, sizeof key, "gpu.%d.rc", gpu);
        code = number(-1, key, 0);
    }
    if (code == 0 && !initialized && strncmp(call, "nvmlInit", 8)) code = UNINITIALIZED;
    return (rc_t)code;
}

#define ENTER(gpu) do { rc_t code_ = enter(__func__, gpu); if (code_) return code_; } while (0)
#define GPU(d) ((d)->index & 63)

static rc_t copy(int gpu, const char *key, const char *otherwise, char *out, unsigned size) {
    char value[448];
    snprintf(out, size, "%s", text(gpu, key, value, sizeof value) ? value : otherwise);
    return OK;
}

/* ---- the driver ------------------------------------------------------------------------------------------------ */

rc_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (int i = 0; i < 64; i++) { devices[i].index = i; instances[i].index = i | 64; }
    ENTER(-1);
    initialized = 1;
    return OK;
}
rc_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
rc_t nvmlShutdown(void) { initialized = 0; return OK; }
const char *nvmlErrorString(rc_t code) { static char words[32]; snprintf(words, sizeof words, "fake error %d", code); return words; }
rc_t nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(-1); return copy(-1, "driver", "580.00", out, size); }
rc_t nvmlSystemGetNVMLVersion(char *out, unsigned size) { ENTER(-1); return copy(-1, "nvml", "13.580.00", out, size); }
rc_t nvmlSystemGetCudaDriverVersion_v2(int *out) { ENTER(-1); *out = 13000; return OK; }
rc_t nvmlDeviceGetCount_v2(unsigned *out) { ENTER(-1); *out = (unsigned)number(-1, "count", 1); return OK; }
rc_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *out) {
    ENTER((int)index);
    if (index >= number(-1, "count", 1)) return INVALID;
    *out = &devices[index];
    return OK;
}
rc_t nvmlDeviceGetName(device_t d, char *out, unsigned size) { ENTER(GPU(d)); return copy(GPU(d), "name", "FAKE GPU", out, size); }
rc_t nvmlDeviceGetUUID(device_t d, char *out, unsigned size) {
    char made[64];
    ENTER(GPU(d));
    snprintf(made, sizeof made, d->index & 64 ? "MIG-%08x-fake" : "GPU-%08x-fake", GPU(d));
    return copy(GPU(d), d->index & 64 ? "mig_uuid" : "uuid", made, out, size);
}

/* ---- one number each ------------------------------------------------------------------------------------------- */

#define ONE(function, type, key, otherwise) \
    rc_t function(device_t d, type *out) { ENTER(GPU(d)); *out = (type)number(GPU(d), key, otherwise); return OK; }

ONE(nvmlDeviceGetPowerUsage, unsigned, "power_mw", 75000)
ONE(nvmlDeviceGetEnforcedPowerLimit, unsigned, "limit_mw", 700000)
ONE(nvmlDeviceGetPowerManagementLimit, unsigned, "limit_mw", 700000)
ONE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, "limit_default_mw", 700000)
ONE(nvmlDeviceGetPerformanceState, int, "pstate", 0)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "pcie_gen", 5)
ONE(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "pcie_width", 16)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, "pcie_gen_max", 5)
ONE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, "pcie_gen_card_max", 5)
ONE(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "pcie_width_max", 16)
ONE(nvmlDeviceGetPcieReplayCounter, unsigned, "pcie_replay", 0)
ONE(nvmlDeviceGetPersistenceMode, int, "persistence", 1)
ONE(nvmlDeviceGetMemoryBusWidth, unsigned, "bus_bits", 6144)
ONE(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "reasons", 0)
#if GENERATION >= 535
ONE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "reasons", 0)
#endif
ONE(nvmlDeviceGetMaxMigDeviceCount, unsigned, "mig_max", 0)
ONE(nvmlDeviceGetSupportedEventTypes, unsigned long long, "event_types", 0xC008)

rc_t nvmlDeviceGetFanSpeed(device_t d, unsigned *out) {
    ENTER(GPU(d));
    *out = (unsigned)number(GPU(d), "fan", -1);
    return *out == (unsigned)-1 ? UNSUPPORTED : OK;     /* passive cards have none */
}
rc_t nvmlDeviceGetUtilizationRates(device_t d, unsigned out[2]) {
    ENTER(GPU(d));
    out[0] = (unsigned)number(GPU(d), "util", 0);
    out[1] = (unsigned)number(GPU(d), "mem_util", 0);
    return OK;
}
rc_t nvmlDeviceGetClockInfo(device_t d, int kind, unsigned *out) {
    ENTER(GPU(d));
    *out = (unsigned)number(GPU(d), kind == 2 ? "mem_mhz" : "sm_mhz", kind == 2 ? 3201 : 345);
    return OK;
}
rc_t nvmlDeviceGetMaxClockInfo(device_t d, int kind, unsigned *out) {
    ENTER(GPU(d));
    *out = (unsigned)number(GPU(d), kind == 2 ? "mem_max_mhz" : "sm_max_mhz", kind == 2 ? 3201 : 1980);
    return OK;
}
rc_t nvmlDeviceGetTemperature(device_t d, int sensor, unsigned *out) { (void)sensor; ENTER(GPU(d)); *out = (unsigned)number(GPU(d), "temp", 40); return OK; }
#if GENERATION >= 570
typedef struct { unsigned version; int sensor; int temperature; } temperature_t;
rc_t nvmlDeviceGetTemperatureV(device_t d, temperature_t *out) { ENTER(GPU(d)); out->temperature = (int)number(GPU(d), "temp", 40); return OK; }
typedef struct { unsigned version; int margin; } margin_t;
rc_t nvmlDeviceGetMarginTemperature(device_t d, margin_t *out) { ENTER(GPU(d)); out->margin = (int)number(GPU(d), "margin", 45); return OK; }
#endif
rc_t nvmlDeviceGetTemperatureThreshold(device_t d, int kind, unsigned *out) { (void)kind; ENTER(GPU(d)); *out = 90; return OK; }
rc_t nvmlDeviceGetEccMode(device_t d, int *now, int *later) { ENTER(GPU(d)); *now = *later = (int)number(GPU(d), "ecc", 1); return OK; }
rc_t nvmlDeviceGetTotalEccErrors(device_t d, int kind, int counter, unsigned long long *out) {
    (void)counter;
    ENTER(GPU(d));
    *out = (unsigned long long)number(GPU(d), kind ? "ecc_uncorrected" : "ecc_corrected", 0);
    return OK;
}
rc_t nvmlDeviceGetRemappedRows(device_t d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ENTER(GPU(d));
    *corrected = 0;
    *uncorrected = (unsigned)number(GPU(d), "remap_uncorrected", 0);
    *pending = (unsigned)number(GPU(d), "remap_pending", 0);
    *failed = (unsigned)number(GPU(d), "remap_failed", 0);
    return OK;
}
rc_t nvmlDeviceGetCudaComputeCapability(device_t d, int *major, int *minor) { ENTER(GPU(d)); *major = (int)number(GPU(d), "sm", 90) / 10; *minor = 0; return OK; }
rc_t nvmlDeviceGetNvLinkState(device_t d, unsigned link, unsigned *out) {
    ENTER(GPU(d));
    if (link >= number(GPU(d), "links", 0)) return link ? INVALID : UNSUPPORTED;
    *out = link >= number(GPU(d), "links_down", 0);
    return OK;
}
rc_t nvmlDeviceGetMigMode(device_t d, unsigned *now, unsigned *later) {
    ENTER(GPU(d));
    double mode = number(GPU(d), "mig", -1);
    if (mode < 0) return UNSUPPORTED;
    *now = *later = (unsigned)mode;
    return OK;
}
rc_t nvmlDeviceGetMigDeviceHandleByIndex(device_t d, unsigned place, device_t *out) {
    ENTER(GPU(d));
    if (place != number(GPU(d), "mig_at", 0)) return NOT_FOUND;
    *out = &instances[GPU(d)];
    return OK;
}

/* ---- pairs ----------------------------------------------------------------------------------------------------- */

rc_t nvmlDeviceGetP2PStatus(device_t a, device_t b, int kind, int *out) {
    char key[32];
    ENTER(GPU(a));
    snprintf(key, sizeof key, "p2p.%d.%d", GPU(b), kind);
    *out = (int)number(GPU(a), key, number(-1, "p2p", 0));
    return OK;
}
rc_t nvmlDeviceGetTopologyCommonAncestor(device_t a, device_t b, int *out) {
    char key[32];
    ENTER(GPU(a));
    snprintf(key, sizeof key, "topology.%d", GPU(b));
    *out = (int)number(GPU(a), key, number(-1, "topology", 30));
    return OK;
}

/* ---- structs ---------------------------------------------------------------------------------------------------- */

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2_t;
rc_t nvmlDeviceGetMemoryInfo(device_t d, memory_t *out) {
    ENTER(GPU(d));
    out->total = (unsigned long long)(number(GPU(d), "mem_total_mib", 143771) * 1048576);
    out->used = (unsigned long long)((number(GPU(d), "mem_used_mib", 0) + number(GPU(d), "mem_reserved_mib", 615)) * 1048576);
    out->free = out->total - out->used;
    return OK;
}
#if GENERATION >= 510
rc_t nvmlDeviceGetMemoryInfo_v2(device_t d, memory2_t *out) {
    ENTER(GPU(d));
    out->total = (unsigned long long)(number(GPU(d), "mem_total_mib", 143771) * 1048576);
    out->reserved = (unsigned long long)(number(GPU(d), "mem_reserved_mib", 615) * 1048576);
    out->used = (unsigned long long)(number(GPU(d), "mem_used_mib", 0) * 1048576);
    out->free = out->total - out->used - out->reserved;
    return OK;
}
#endif
typedef struct { unsigned long long total, free, used; } bar1_t;
rc_t nvmlDeviceGetBAR1MemoryInfo(device_t d, bar1_t *out) {
    ENTER(GPU(d));
    out->total = (unsigned long long)(number(GPU(d), "bar1_mib", 262144) * 1048576);
    out->free = out->total;
    out->used = 0;
    return OK;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
static rc_t processes(int gpu, unsigned *count, process_t *out) {
    char listed[448];
    unsigned found = 0, room = *count;
    if (text(gpu, "procs", listed, sizeof listed))
        for (char *rest = NULL, *each = strtok_r(listed, ",", &rest); each; each = strtok_r(NULL, ",", &rest)) {
            unsigned pid = 0, mib = 0;
            if (sscanf(each, "%u:%u", &pid, &mib) < 1) continue;
            if (out && found < room) out[found] = (process_t){pid, (unsigned long long)mib << 20, ~0u, ~0u};
            found++;
        }
    *count = found;
    if (out && number(gpu, "procs_grow", 0) > 0) return TOO_SMALL;     /* the list grew between the two calls */
    return found > room ? TOO_SMALL : OK;
}
rc_t nvmlDeviceGetComputeRunningProcesses_v2(device_t d, unsigned *count, process_t *out) { ENTER(GPU(d)); return processes(GPU(d), count, out); }
#if GENERATION >= 510
rc_t nvmlDeviceGetComputeRunningProcesses_v3(device_t d, unsigned *count, process_t *out) { ENTER(GPU(d)); return processes(GPU(d), count, out); }
#endif

typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long sll; int i; unsigned short us; } value_t;
typedef struct { unsigned id, scope; long long timestamp, latency; int type; rc_t rc; value_t value; } field_t;
rc_t nvmlDeviceGetFieldValues(device_t d, int count, field_t *fields) {
    ENTER(GPU(d));
    for (int i = 0; i < count; i++) {
        char key[32], value[448];
        snprintf(key, sizeof key, "field.%u", fields[i].id);
        fields[i].rc = (rc_t)number2(GPU(d), key, "rc", 0);
        fields[i].type = (int)number2(GPU(d), key, "type", 3);
        if (!text(GPU(d), key, value, sizeof value)) {
            if (!fields[i].rc) fields[i].rc = UNSUPPORTED;
            continue;
        }
        if (fields[i].type == 1) fields[i].value.u = (unsigned)strtoull(value, NULL, 10);
        else if (fields[i].type == 0) fields[i].value.d = strtod(value, NULL);
        else fields[i].value.ull = strtoull(value, NULL, 10);
    }
    return OK;
}

#if GENERATION >= 550
typedef struct { unsigned version; unsigned char cluster[16]; rc_t status; unsigned clique; unsigned char state; unsigned mask; unsigned char summary; } fabric_t;
rc_t nvmlDeviceGetGpuFabricInfoV(device_t d, fabric_t *out) {
    ENTER(GPU(d));
    if (number(GPU(d), "fabric_state", -1) < 0) return UNSUPPORTED;
    if (out->version == 0x3000028 && GENERATION < 570) return 25;
    out->status = 0;
    out->state = (unsigned char)number(GPU(d), "fabric_state", 3);
    out->mask = (unsigned)number(GPU(d), "fabric_mask", 0);
    if (out->version == 0x3000028) out->summary = 1;
    return OK;
}
#endif

/* ---- GPM -------------------------------------------------------------------------------------------------------- */

#if GENERATION >= 525
typedef struct { unsigned version, supported; } gpm_support_t;
typedef struct { int gpu; double at; } *gpm_sample_t;
typedef struct { unsigned id; rc_t rc; double value; struct { char *s, *l, *u; } info; } gpm_metric_t;
typedef struct { unsigned version, count; gpm_sample_t before, now; gpm_metric_t metrics[1]; } gpm_get_t;

rc_t nvmlGpmQueryDeviceSupport(device_t d, gpm_support_t *out) { ENTER(GPU(d)); out->supported = number(GPU(d), "gpm", 1) != 0; return OK; }
rc_t nvmlGpmSampleAlloc(gpm_sample_t *out) { *out = calloc(1, sizeof **out); return OK; }
rc_t nvmlGpmSampleFree(gpm_sample_t sample) { free(sample); return OK; }
rc_t nvmlGpmSampleGet(device_t d, gpm_sample_t out) {
    struct timespec now;
    ENTER(GPU(d));
    clock_gettime(CLOCK_MONOTONIC, &now);
    out->gpu = GPU(d);
    out->at = now.tv_sec + now.tv_nsec / 1e9;
    return OK;
}
rc_t nvmlGpmMetricsGet(gpm_get_t *get) {
    ENTER(get->now->gpu);
    if (get->before->gpu != get->now->gpu || get->now->at - get->before->at < 0.1) return INVALID;
    for (unsigned i = 0; i < get->count; i++) {
        char key[32], value[448];
        snprintf(key, sizeof key, "gpm.%u", get->metrics[i].id);
        get->metrics[i].rc = text(get->now->gpu, key, value, sizeof value) ? OK : UNSUPPORTED;
        if (get->metrics[i].rc == OK) get->metrics[i].value = strtod(value, NULL);
    }
    return OK;
}
size_t fake_sizeof_gpm_metric(void) { return sizeof(gpm_metric_t); }
#endif

/* ---- events ----------------------------------------------------------------------------------------------------- */

typedef struct { device_t device; unsigned long long type, data; unsigned gi, ci; } event_t;
static long events_taken = -1;
rc_t nvmlEventSetCreate(void **out) { ENTER(-1); *out = &events_taken; events_taken = (long)number(-1, "events", 0); return OK; }
rc_t nvmlDeviceRegisterEvents(device_t d, unsigned long long mask, void *set) { (void)mask; (void)set; ENTER(GPU(d)); return OK; }
rc_t nvmlEventSetFree(void *set) { (void)set; return OK; }
rc_t nvmlEventSetWait_v2(void *set, event_t *out, unsigned ms) {
    (void)set;
    for (unsigned waited = 0; ; waited += 25) {
        ENTER(-1);
        if (events_taken < number(-1, "events", 0)) break;
        if (waited >= ms) return TIMED_OUT;
        usleep(25000);
    }
    char key[32], value[448];
    int gpu = 0;
    unsigned long long type = 8, data = 0;
    snprintf(key, sizeof key, "event.%ld", ++events_taken);
    if (!text(-1, key, value, sizeof value) && !text(-1, "event.any", value, sizeof value)) return 999;
    sscanf(value, "%d %llu %llu", &gpu, &type, &data);
    *out = (event_t){&devices[gpu], type, data, ~0u, ~0u};
    return OK;
}

/* ---- sizes, for the test that compares them with the binding ---------------------------------------------------- */

size_t fake_sizeof_memory2(void) { return sizeof(memory2_t); }
size_t fake_sizeof_process(void) { return sizeof(process_t); }
size_t fake_sizeof_field(void) { return sizeof(field_t); }
size_t fake_sizeof_event(void) { return sizeof(event_t); }
#if GENERATION >= 550
size_t fake_sizeof_fabric(void) { return sizeof(fabric_t); }
#endif
