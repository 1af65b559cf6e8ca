//! Options of `transfer`.

use clap::{ArgGroup, Args as ClapArgs, Subcommand};

use crate::completion;

#[derive(Debug, Subcommand)]
pub(crate) enum TransferCommand {
    /// Start a transfer of a VM
    #[command(
        override_usage = "tidegate transfer start <VM> --size <SIZE> [OPTIONS]\n           \
                          <--deadline TIME | --by TIME | --tolerance PART>",
        after_help = "From now on the bytes of all successful reads and writes of the VM count. \
                      The answer has a forecast. If the device has a profile, a transfer is \
                      refused if the bandwidth that it needs does not fit beside existing \
                      promises. Policies slo (the default) and pridyn enforce deadlines; under \
                      other policies transfers are only monitored. A VM has one transfer at a \
                      time. Its progress is kept in the [store] and survives a restart.\n\nWith \
                      --wait, exits with 0 if the deadline was met, otherwise with 1.\n\n\
                      Examples:
  tidegate transfer start dss --size \"2 GiB\" --deadline \"60 s\"
  tidegate transfer start dss --size \"20 GiB\" --by 14:03 --wait
  tidegate transfer start dss --size \"20 GiB\" --by 2026-12-01T06:00
  tidegate transfer start dss --size \"2 GiB\" --tolerance 0.3   30 % extra"
    )]
    Start(StartTransferArgs),
    /// List running transfers and recent results
    List,
    /// Show the transfer of a VM: progress and forecast
    Show {
        /// VM name
        #[arg(add = completion::vms())]
        vm: String,
    },
    /// Cancel a transfer; the VM's I/O goes on
    Cancel {
        /// VM name
        #[arg(add = completion::vms())]
        vm: String,
    },
}

/// Options of a new transfer. Figures are text with units, which the daemon parses.
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("when").required(true).args(["deadline", "by", "tolerance"])))]
pub(crate) struct StartTransferArgs {
    /// VM name
    #[arg(add = completion::vms())]
    pub(crate) vm: String,
    /// Amount of data to read and write, such as "2 GiB"
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: String,
    /// Deadline from now, such as "60 s"
    #[arg(long, value_name = "TIME", help_heading = "By when")]
    pub(crate) deadline: Option<String>,
    /// Deadline on the host's clock: the next 14:03, or 2026-12-01T06:00
    #[arg(long, value_name = "TIME", help_heading = "By when")]
    pub(crate) by: Option<String>,
    /// Deadline as extra time over the shortest possible duration: 0.3 is 30 %
    #[arg(long, value_name = "PART", help_heading = "By when")]
    pub(crate) tolerance: Option<f64>,
    /// Replace the VM's running transfer, which is cancelled
    #[arg(long)]
    pub(crate) replace: bool,
    /// Start it even if the bandwidth that it needs does not fit beside existing promises
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait until the transfer is done or cancelled
    #[arg(long)]
    pub(crate) wait: bool,
}

#[cfg(test)]
mod tests {
    use crate::args::Args;

    #[test]
    fn a_transfer_has_a_size_and_one_time_by_which_it_is_to_be_done() {
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
