//! Options of `transfer`.

use clap::{ArgGroup, Args as ClapArgs, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Begin a transfer of a VM, now
    #[command(
        override_usage = "tidegate transfer start <VM> --size <SIZE> \
                          <--deadline TIME | --by TIME | --tolerance PART> [OPTIONS]",
        after_help = "Bytes of reads and writes of the VM that are answered well from now on \
                      count. The answer says\nwhat will come of it. Where the device has a \
                      profile, a transfer is refused whose bytes\na second do not fit beside \
                      what is promised. Policy pridyn sees to it that transfers\nare done in \
                      time, as far as that can be; under others they are watched and\nforecast. \
                      A VM has one transfer at a time. It is kept in the [store] with what has\n\
                      moved, and goes on after a restart.\n\nWith --wait: exits with \
                      0 when it was done in time, else with 1.\n\nExamples:
  tidegate transfer start dss --size \"2 GiB\" --deadline \"60 s\"
  tidegate transfer start dss --size \"20 GiB\" --by 14:03 --wait
  tidegate transfer start dss --size \"20 GiB\" --by 2026-12-01T06:00
  tidegate transfer start dss --size \"2 GiB\" --tolerance 0.3    30 % longer than the device needs"
    )]
    Start(StartJobArgs),
    /// All transfers that run, and what became of the last ones
    List,
    /// One VM's transfer: how far it is, what will come of it
    Show {
        /// The VM's name
        vm: String,
    },
    /// End a transfer that is not wanted any more; what the VM does goes on
    Cancel {
        /// The VM's name
        vm: String,
    },
}

/// A transfer. Figures are text; the daemon reads them as the configuration's.
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("when").required(true).args(["deadline", "by", "tolerance"])))]
pub(crate) struct StartJobArgs {
    /// The VM's name
    pub(crate) vm: String,
    /// How many bytes are to be read and written, such as "2 GiB"
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: String,
    /// How long it may take, such as "60 s"
    #[arg(long, value_name = "TIME", help_heading = "By when")]
    pub(crate) deadline: Option<String>,
    /// When it is to be done on the host's clock: the next 14:03, or 2026-12-01T06:00
    #[arg(long, value_name = "TIME", help_heading = "By when")]
    pub(crate) by: Option<String>,
    /// As long as the device needs beside those that use it now, and this part longer: 0.3 is 30 %
    #[arg(long, value_name = "PART", help_heading = "By when")]
    pub(crate) tolerance: Option<f64>,
    /// Instead of a transfer that it has, which is cancelled
    #[arg(long)]
    pub(crate) replace: bool,
    /// Begin it even if what it needs a second does not fit beside what is promised on the device
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait until it is done, or cancelled
    #[arg(long)]
    pub(crate) wait: bool,
}

#[cfg(test)]
mod tests {
    use crate::args::Args;

    #[test]
    fn a_job_has_a_size_and_one_time_by_which_it_is_to_be_done() {
        let read = |words: &[&str]| {
            let mut read = ["transfer", "job"].iter().map(|name| {
                let words = ["tidegate", name, "start"]
                    .into_iter()
                    .chain(words.iter().copied());
                Args::read(words).is_ok()
            });
            let (new, old) = (read.next(), read.next());
            assert_eq!(new, old, "the old name of the command goes, too: {words:?}");
            new == Some(true)
        };
        assert!(read(&["a", "--size", "1 GiB", "--by", "14:03"]));
        assert!(read(&[
            "a",
            "--size",
            "1 GiB",
            "--tolerance",
            "0.3",
            "--wait"
        ]));
        for refused in [
            &["a", "--size", "1 GiB"][..],
            &["a", "--by", "14:03"],
            &["--size", "1 GiB", "--by", "14:03"],
            &["a", "--size", "1 GiB", "--by", "14:03", "--deadline", "1 s"],
            &["a", "--size", "1 GiB", "--tolerance", "some"],
        ] {
            assert!(!read(refused), "{refused:?}");
        }
    }
}
