//! List of fio's options: read, ignored or refused.

/// Treatment of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Treatment {
    /// The option is read.
    Read,
    /// The option has no effect; with the reason.
    Ignored(&'static str),
    /// The option would change the workload and is not supported; with the reason, and the values
    /// that have no such effect.
    Refused(&'static str, &'static [&'static str]),
}

/// Returns the primary name of the option `name`, and its treatment; `None` if it is unknown.
pub(super) fn find(name: &str) -> Option<(&'static str, Treatment)> {
    let read = READ.iter().find(|names| names.contains(&name));
    if let Some(names) = read {
        return Some((names[0], Treatment::Read));
    }
    for (why, names) in IGNORED {
        if let Some(known) = names.iter().find(|known| **known == name) {
            return Some((known, Treatment::Ignored(why)));
        }
    }
    for (why, harmless, names) in REFUSED {
        if let Some(known) = names.iter().find(|known| **known == name) {
            return Some((known, Treatment::Refused(why, harmless)));
        }
    }
    None
}

/// Iterates over all names for suggestions; those of options that are read come first.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let read = READ.iter().flat_map(|names| names.iter());
    let ignored = IGNORED.iter().flat_map(|(_, names)| names.iter());
    let refused = REFUSED.iter().flat_map(|(_, _, names)| names.iter());
    read.chain(ignored).chain(refused).copied()
}

/// Options that are read, each with its aliases; the primary name is first.
pub(super) const READ: &[&[&str]] = &[
    &["name"],
    &["description"],
    &["kb_base"],
    &["rw", "readwrite"],
    &["bs", "blocksize"],
    &["bsrange", "blocksize_range"],
    &["bssplit"],
    &["ba", "blockalign"],
    &["rwmixread"],
    &["rwmixwrite"],
    &["size"],
    &["offset", "fileoffset"],
    &["offset_increment"],
    &["io_size", "io_limit"],
    &["number_ios"],
    &["loops"],
    &["random_distribution"],
    &["norandommap"],
    &["iodepth"],
    &["ioengine"],
    &["numjobs"],
    &["rate"],
    &["rate_iops"],
    &["rate_process"],
    &["thinktime"],
    &["thinktime_blocks"],
    &["startdelay"],
    &["ramp_time"],
    &["runtime", "timeout"],
    &["time_based"],
    &["stonewall", "wait_for_previous"],
    &["nrfiles", "nr_files"],
    &["file_service_type"],
    &["fsync"],
    &["fdatasync"],
    &["sync"],
];

/// Options about how fio does its I/O or reports it, by the reason why they are ignored.
#[rustfmt::skip]
pub(super) const IGNORED: &[(&str, &[&str])] = &[
    (
        "a job's addresses are those of its VM's disk; there are no files",
        &[
            "filename", "directory", "filename_format", "filetype", "unique_filename",
            "lockfile", "openfiles", "fallocate", "fadvise_hint",
            "file_append", "fill_device", "fill_fs", "create_serialize", "create_fsync",
            "create_on_open", "allow_file_create", "allow_mounted_write", "overwrite", "unlink",
            "unlink_each_loop",
        ],
    ),
    (
        "a job ends with its last request",
        &["fsync_on_close", "end_fsync", "end_syncfs"],
    ),
    (
        "requests go straight to the disk; the guest's page cache is not simulated",
        &["direct", "buffered", "invalidate", "pre_read", "atomic", "write_hint"],
    ),
    (
        "each request is handed in by itself as soon as it may be",
        &[
            "iodepth_batch", "iodepth_batch_submit", "iodepth_batch_complete",
            "iodepth_batch_complete_min", "iodepth_batch_complete_max", "iodepth_low",
            "io_submit_mode",
        ],
    ),
    (
        "the host's system calls are not simulated",
        &[
            "thread", "mem", "iomem", "iomem_align", "mem_align", "lockmem", "hugepage-size",
            "comm",
            "ioscheduler", "userspace_reap", "hipri", "hipri_percentage", "fixedbufs",
            "registerfiles", "sqthread_poll", "sqthread_poll_cpu", "nonvectored", "uncached",
            "nowait", "force_async", "cmd_type", "uri", "hostname", "port", "pool", "rbdname",
            "clientname", "clustername", "busy_poll",
        ],
    ),
    (
        "the guest's processors are not simulated",
        &[
            "cpumask", "cpus_allowed", "cpus_allowed_policy", "numa_cpu_nodes",
            "numa_mem_policy", "gpu_dev_id", "nice", "thinktime_spin", "exec_prerun",
            "exec_postrun", "uid", "gid",
        ],
    ),
    (
        "priority and limits of a VM are set by its objective",
        &[
            "prio", "prioclass", "priohint", "cmdprio", "cmdprio_class", "cmdprio_hint",
            "cmdprio_percentage", "cmdprio_bssplit", "cgroup", "cgroup_nodelete", "cgroup_weight",
            "rate_min", "ratemin", "rate_iops_min", "rate_cycle", "ratecycle", "max_latency",
        ],
    ),
    (
        "random numbers come from the scenario's seed",
        &["randrepeat", "allrandrepeat", "randseed", "random_generator", "softrandommap"],
    ),
    (
        "the content of data is not simulated",
        &[
            "zero_buffers", "refill_buffers", "scramble_buffers", "buffer_pattern",
            "buffer_compress_percentage", "buffer_compress_chunk", "dedupe_percentage",
            "dedupe_global", "dedupe_mode", "dedupe_working_set_percentage", "do_verify",
            "verify_policy", "verifysort", "verifysort_nr", "verify_interval", "verify_offset",
            "verify_pattern", "verify_pattern_interval", "verify_fatal", "verify_dump",
            "verify_async", "verify_async_cpus", "verify_backlog", "verify_backlog_batch",
            "experimental_verify", "verify_state_load", "verify_state_save",
            "verify_write_sequence", "verify_header_seed",
        ],
    ),
    (
        "the simulator has its own measurements and reports",
        &[
            "group_reporting", "new_group", "unified_rw_reporting", "stats", "per_job_logs",
            "write_bw_log", "write_lat_log", "write_iops_log", "write_hist_log", "write_iolog",
            "log_entries", "log_avg_msec", "log_hist_msec", "log_hist_coarseness",
            "log_window_value", "log_max_value", "log_max", "log_offset", "log_prio",
            "log_issue_time", "log_compression", "log_compression_cpus", "log_store_compressed",
            "log_alternate_epoch", "log_unix_epoch", "log_alternate_epoch_clock_id",
            "job_start_clock_id", "block_error_percentiles", "bwavgtime", "iopsavgtime",
            "clat_percentiles", "lat_percentiles", "slat_percentiles", "percentile_list",
            "significant_figures", "disk_util", "gtod_reduce", "gtod_cpu", "clocksource",
            "disable_lat", "disable_clat", "disable_slat", "disable_bw_measurement",
            "disable_bw", "unit_base", "continue_on_error", "ignore_error", "error_dump",
            "exitall_on_error",
        ],
    ),
];

type Refusals = &'static [(
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
)];

/// Options that are not supported: reason, values that are accepted all the same, names.
#[rustfmt::skip]
pub(super) const REFUSED: Refusals = &[
    ("a job works on one region of one disk", &[], &["opendir"]),
    (
        "the disk is as large as its VM's; a job's region is its `size`",
        &[],
        &["filesize"],
    ),
    (
        "written data is not read back",
        &["0", "none"],
        &["verify", "verify_only"],
    ),
    (
        "a random job is random throughout",
        &["100", "100,100,100"],
        &["percentage_random"],
    ),
    (
        "a random job is random throughout",
        &[],
        &["percentage_sequential"],
    ),
    (
        "requests lie at multiples of their operation's smallest size",
        &["0"],
        &["bs_unaligned", "blocksize_unaligned", "bs_is_seq_rand", "offset_align"],
    ),
    (
        "each request's place is drawn by itself",
        &["0"],
        &["sprandom", "random_sequence_stride", "serialize_overlap"],
    ),
    (
        "runs of one offset are not supported",
        &["sequential"],
        &["rw_sequencer"],
    ),
    (
        "each request of a mix, and its place, is drawn by itself",
        &[],
        &["rwmixcycle", "spr_num_regions", "spr_op", "spr_cs"],
    ),
    (
        "a job starts at a known time and ends by itself",
        &["0"],
        &["exitall", "create_only", "latency_run"],
    ),
    (
        "a job starts at a known time and ends by itself",
        &[],
        &[
            "exit_what", "wait_for", "ramp_size", "steadystate", "ss", "steadystate_duration",
            "ss_dur", "steadystate_ramp_time", "ss_ramp", "steadystate_check_interval",
            "ss_interval",
        ],
    ),
    (
        "a job's depth and rate are its own and fixed",
        &["0"],
        &[
            "flow", "flow_id", "flow_sleep", "flow_watermark", "latency_target",
            "latency_window", "rate_ignore_thinktime",
        ],
    ),
    (
        "a job's depth and rate are its own and fixed",
        &[],
        &["latency_percentile"],
    ),
    (
        "think times follow replies, after a number of requests",
        &["0"],
        &["thinkcycles", "thinktime_iotime"],
    ),
    (
        "think times follow replies, after a number of requests",
        &["complete"],
        &["thinktime_blocks_type"],
    ),
    (
        "flushes are requested by `fsync`, `fdatasync` and `sync`",
        &["0"],
        &["write_barrier"],
    ),
    (
        "flushes are requested by `fsync`, `fdatasync` and `sync`",
        &[],
        &["sync_file_range"],
    ),
    (
        "a discard is a request of its own (`rw=trim`, `trimwrite`)",
        &["0"],
        &["trim_percentage", "trim_backlog", "trim_backlog_batch"],
    ),
    (
        "a discard is a request of its own (`rw=trim`, `trimwrite`)",
        &["1"],
        &["num_range", "trim_verify_zero"],
    ),
    (
        "zones and data placement are not simulated",
        &["none", "0"],
        &[
            "zonemode", "zonesize", "zonecapacity", "zonerange", "zoneskip", "read_beyond_wp",
            "max_open_zones", "job_max_open_zones", "ignore_zone_limits",
            "zone_reset_threshold", "zone_reset_frequency", "fdp", "dataplacement",
            "data_placement", "fdp_pli", "fdp_pli_select", "plid_select", "plids", "dp_scheme",
            "recover_zbd_write_error", "write_zone_remainder",
        ],
    ),
    (
        "traces are not replayed from job files",
        &[],
        &[
            "read_iolog", "replay_no_stall", "replay_redirect", "replay_scale", "replay_align",
            "replay_time_scale", "replay_skip", "merge_blktrace_file", "merge_blktrace_scalars",
            "merge_blktrace_iters", "read_iolog_chunked", "profile",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_name_stands_once() {
        let mut seen = BTreeSet::new();
        for name in names() {
            assert!(seen.insert(name), "{name} twice");
        }
    }

    #[test]
    fn each_option_that_is_read_is_documented() {
        let page = include_str!("../../../../docs/fio-jobs.md");
        for name in READ.iter().flat_map(|names| names.iter()) {
            let word = [
                format!("`{name}`"),
                format!("`{name}="),
                format!("\n{name}="),
            ];
            let is_documented = word.iter().any(|word| page.contains(word));
            assert!(is_documented, "{name} is not in docs/fio-jobs.md");
        }
    }

    #[test]
    fn other_names_lead_to_the_first() {
        assert_eq!(find("readwrite"), Some(("rw", Treatment::Read)));
        assert_eq!(find("timeout"), Some(("runtime", Treatment::Read)));
        assert_eq!(find("rwx"), None);
    }
}
