//! Options of `tidegate place`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_units::Thousandths;

use super::StoreArgs;
use super::value::{parse_bandwidth, parse_size, parse_time, whole};

/// Commands of `tidegate place`.
#[derive(Debug, Subcommand)]
pub(crate) enum PlaceCommand {
    /// Place a job: it goes to a host, waits for one, or is refused
    #[command(
        after_help = "A job goes to a host where it and all running jobs are forecast to meet \
                      their deadlines; of several, to the one with the most free bandwidth. If \
                      there is none, it waits until its deadline and is tried again whenever a job \
                      ends. A job that even an empty host could not finish in time is refused, \
                      with exit code 1.\n\nDefine the hosts once, in a file:
  [[host]]
  name = \"a\"
  bandwidth = \"54 MB/s\"              # for one job
  loss = [\"0 B/s\", \"17 MB/s\"]       # lost with one job, with two or more
  jobs = 16                          # maximum
or one by one with `tidegate place host add`.

Examples:
  tidegate place job backup --size 2GiB --deadline 60s --hosts place.toml
  tidegate place job --size \"20 GB\" --deadline \"5 min\" --dry-run -o json"
    )]
    Job(PlaceJobArgs),
    /// Place many jobs, one a line of a file, in one go
    #[command(
        after_help = "Each line has what `tidegate place job` takes: name, size, deadline, \
                      limit, start; as JSON or as TOML. Empty lines and those that begin with \
                      # are passed over. All lines are read before anything is placed: a wrong \
                      one is an error that names it. Then the jobs are placed in order, and a \
                      line is printed for each (JSON lines with -o json). Exits with 1 if a \
                      job was refused; the others are placed all the same.\n\n\
                      Lines, in JSON and in TOML:
  {\"name\": \"backup\", \"size\": \"2 GiB\", \"deadline\": \"60 s\"}
  name = \"scan\", size = \"20 GB\", deadline = \"1 h\", limit = \"20 MB/s\"

Examples:
  tidegate place jobs nightly.jsonl --hosts place.toml
  make-jobs | tidegate place jobs - -o json"
    )]
    Jobs(PlaceJobsArgs),
    /// List hosts, their jobs with forecasts, and waiting jobs
    List {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Report the progress of jobs, from which the priority database learns
    #[command(
        after_help = "A job without a report is assumed to progress as forecast. The priority \
                      database learns the bandwidths of a host from two reports of all its jobs \
                      without a change in between.\n\nExample:
  tidegate place moved backup=\"1 GiB\" scan=\"300 MiB\""
    )]
    Moved {
        /// Amount moved since the job began, of each job
        #[arg(required = true, value_name = "NAME=SIZE", value_parser = parse_moved)]
        moved: Vec<(String, u64)>,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// End a job; waiting jobs are tried on its host
    End {
        /// Job name
        name: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Set stored times that are ahead of this machine's clock to now
    #[command(
        after_help = "After a placer with a wrong clock, commands fail because stored times are \
                      ahead of now. Check first that the clock of this machine is right \
                      (`timedatectl`). Then this command sets such times of hosts and jobs to now; \
                      the progress of such a job becomes what was reported last. A job that a \
                      daemon was to start keeps the time at which it began, and so a later \
                      deadline; `tidegate place end` ends it.\n\nExample:
  tidegate place repair-times"
    )]
    RepairTimes {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// List, add, drain, resume and remove hosts
    #[command(subcommand)]
    Host(PlaceHostCommand),
    /// Show the priority database: the bandwidth of each class, by number and classes of jobs
    Db {
        /// Database file [default: that of --db or TIDEGATE_PLACE_DB]
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Simulate a data centre under PCOS, first-fit, best-fit and random placement
    #[command(
        after_help = "Hosts run PriDyn on disks modelled as shared fluids. The same options give \
                      the same results on every machine. --times adds how long decisions take on \
                      this machine.\n\nExamples:
  tidegate place sim
  tidegate place sim --hosts 100 --arrivals 8 --strategy pcos --seed 7"
    )]
    Sim(DataCentreArgs),
}

/// Commands of `tidegate place host`.
#[derive(Debug, Subcommand)]
pub(crate) enum PlaceHostCommand {
    /// List hosts, their jobs and their free capacity
    List {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Add a host; waiting jobs are tried on it
    #[command(after_help = "Example:
  tidegate place host add c --bandwidth \"54 MB/s\" \\
      --loss \"0 B/s\" --loss \"17 MB/s\" --jobs 16")]
    Add(AddHostArgs),
    /// Place no more jobs on a host; running jobs go on, its daemon need not answer
    Drain {
        /// Host name
        name: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Place jobs on a drained host again; waiting jobs are tried on it
    Resume {
        /// Host name
        name: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Remove a host without asking its daemon; learnt bandwidths are kept
    #[command(
        after_help = "Running jobs are requeued or lost; the result of each is shown.\n\nExamples:
  tidegate place host remove c              a host without jobs
  tidegate place host remove c --requeue    a failed host: place jobs elsewhere"
    )]
    Remove(RemoveHostArgs),
}

/// Options of `tidegate place host add`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AddHostArgs {
    /// Host name
    #[arg(value_parser = parse_name)]
    pub(crate) name: String,
    /// Bandwidth of its disk with one job, such as "54 MB/s"
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    pub(crate) bandwidth: u64,
    /// Bandwidth lost with one job; repeat for two jobs, and so on
    #[arg(long, value_name = "RATE", value_parser = parse_loss)]
    pub(crate) loss: Vec<u64>,
    /// Maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = tidegate_place::MAX_VMS,
          value_parser = whole::<usize>(1..=64))]
    pub(crate) jobs: usize,
    /// Control socket of the daemon that serves its VMs, a path on the machine that places
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) daemon: Option<PathBuf>,
    /// Device of that daemon [default: all]
    #[arg(long, value_name = "DEVICE", requires = "daemon")]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Options of `tidegate place host remove`.
#[derive(Debug, ClapArgs)]
pub(crate) struct RemoveHostArgs {
    /// Host name
    pub(crate) name: String,
    /// Place the rest of running jobs on other hosts
    #[arg(long, conflicts_with = "lose")]
    pub(crate) requeue: bool,
    /// Give up running jobs
    #[arg(long)]
    pub(crate) lose: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Options of `tidegate place job`.
#[derive(Debug, ClapArgs)]
pub(crate) struct PlaceJobArgs {
    /// Job name [default: job-1, job-2 and so on]
    pub(crate) name: Option<String>,
    /// Amount of data that it reads and writes, such as "2 GiB"
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: u64,
    /// Deadline from its start, and longest wait for a host, such as "60 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) deadline: Nanos,
    /// Highest bandwidth that it can use, such as "20 MB/s" [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    pub(crate) limit: Option<u64>,
    /// Start it as a deadline transfer of the VM of the same name, on the host's daemon
    #[arg(long, requires = "name")]
    pub(crate) start: bool,
    #[command(flatten)]
    pub(crate) cluster: PlacementArgs,
}

/// Options of `tidegate place jobs`.
#[derive(Debug, ClapArgs)]
pub(crate) struct PlaceJobsArgs {
    /// File of jobs, one a line; - is standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) cluster: PlacementArgs,
}

/// Options of commands that place jobs: the cluster, and whether it is changed.
#[derive(Debug, ClapArgs)]
pub(crate) struct PlacementArgs {
    /// File of hosts (TOML), which is stored in the database
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hosts: Option<PathBuf>,
    /// Show what is decided without storing it
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Options of `tidegate place sim`.
#[derive(Debug, ClapArgs)]
pub(crate) struct DataCentreArgs {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value = "1000",
          value_parser = whole::<usize>(1..=100_000))]
    pub(crate) hosts: usize,
    /// Mean number of jobs that arrive per second
    #[arg(long, value_name = "N", default_value_t = 80.0, value_parser = parse_arrivals)]
    pub(crate) arrivals: f64,
    /// Simulated time after the warm-up
    #[arg(long, value_name = "TIME", default_value = "600 s", value_parser = parse_time)]
    pub(crate) length: Nanos,
    /// Simulated time before counting begins
    #[arg(long, value_name = "TIME", default_value = "1200 s", value_parser = parse_time)]
    pub(crate) warm_up: Nanos,
    /// Share of jobs with a limited bandwidth, such as 30%
    #[arg(long, value_name = "PART", default_value = "0%", value_parser = parse_part)]
    pub(crate) limited: u32,
    /// Limited jobs declare their limit; otherwise it is observed once they run
    #[arg(long)]
    pub(crate) told: bool,
    /// Placement strategy: pcos, first-fit, best-fit or random [default: all]
    #[arg(long = "strategy", value_name = "NAME", value_parser = parse_strategy)]
    pub(crate) strategies: Vec<tidegate_place::data_centre::Strategy>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// Also show how long decisions take on this machine
    #[arg(long)]
    pub(crate) times: bool,
}

fn parse_name(text: &str) -> Result<String, String> {
    use tidegate_config::names::{NAME_FORM, is_name};
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err(NAME_FORM.to_owned())
    }
}

/// Parses a loss of bandwidth, which may be 0.
fn parse_loss(text: &str) -> Result<u64, String> {
    tidegate_units::parse_bandwidth(text).map_err(|error| error.to_string())
}

/// Parses the progress of a job: `NAME=SIZE`.
fn parse_moved(text: &str) -> Result<(String, u64), String> {
    let help = || "write NAME=SIZE, such as backup=\"1 GiB\"".to_owned();
    let (name, size) = text.split_once('=').ok_or_else(help)?;
    let bytes = tidegate_units::parse_bytes(size.trim()).map_err(|error| error.to_string())?;
    match name.trim() {
        "" => Err(help()),
        name => Ok((name.to_owned(), bytes)),
    }
}

/// Parses a percentage and returns thousandths.
fn parse_part(text: &str) -> Result<u32, String> {
    let part = text.parse::<Thousandths>();
    part.map(|Thousandths(part)| part)
        .map_err(|error| error.to_string())
}

fn parse_arrivals(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate| (0.001..=100_000.0).contains(rate));
    rate.ok_or_else(|| "a number from 0.001 to 100000".to_owned())
}

fn parse_strategy(text: &str) -> Result<tidegate_place::data_centre::Strategy, String> {
    let all = tidegate_place::data_centre::Strategy::ALL;
    let names: Vec<_> = all.iter().map(|strategy| strategy.name()).collect();
    let found = all.into_iter().find(|strategy| strategy.name() == text);
    found.ok_or_else(|| format!("one of {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_moved_is_read_or_refused_with_what_is_right() {
        assert_eq!(parse_moved("a=1 GiB"), Ok(("a".to_owned(), 1 << 30)));
        assert_eq!(parse_moved("a=0 B"), Ok(("a".to_owned(), 0)));
        for text in ["a", "=1 GiB", "a=1", "a="] {
            assert!(parse_moved(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_simulated_is_read_or_refused_with_what_is_right() {
        for strategy in tidegate_place::data_centre::Strategy::ALL {
            assert_eq!(parse_strategy(strategy.name()), Ok(strategy));
        }
        let message = parse_strategy("worst-fit").expect_err("there is none");
        assert_eq!(message, "one of pcos, first-fit, best-fit, random");
        assert_eq!(parse_part("30%"), Ok(300));
        assert_eq!(parse_part("2.5 %"), Ok(25));
        for text in ["30", "101%", "-1%", "NaN%", "%", "2.55%"] {
            assert!(parse_part(text).is_err(), "{text}");
        }
        assert!(parse_arrivals("0").is_err() && parse_arrivals("NaN").is_err());
    }
}
