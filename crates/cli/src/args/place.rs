//! Options of `place`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_units::Thousandths;

use super::value::{parse_bandwidth, parse_size, parse_time, whole};

/// `tidegate place`.
#[derive(Debug, Subcommand)]
pub(crate) enum PlaceCommand {
    /// Ask for a host for a job: it goes to one, waits for one, or is refused
    #[command(
        after_help = "A job goes to a host where it and all that run there are foreseen to end in \
                      time; of several\nto that with most free bandwidth. If there is none it \
                      waits until its deadline, and is tried\nagain when a job ends. A job that no \
                      empty host would do in time is refused; the exit code\nis 1 then.\n\n\
                      Hosts are told once, by a file:
  [[host]]
  name = \"a\"
  bandwidth = \"54 MB/s\"              # for one job
  loss = [\"0 B/s\", \"17 MB/s\"]       # with one on it, with two and more
  jobs = 16                          # at most
or one by one by `tidegate place host add`.

Examples:
  tidegate place job backup --size 2GiB --deadline 60s --hosts place.toml
  tidegate place job --size \"20 GB\" --deadline \"5 min\" --dry-run -o json"
    )]
    Job(PlaceJobArgs),
    /// Hosts, the jobs there with what will come of them, and those that wait
    List {
        #[command(flatten)]
        db: DbArg,
    },
    /// Tell what has moved of jobs so far; the priority database learns from it
    #[command(
        after_help = "Until it is told a job is taken to move as it was foreseen. Told of all jobs \
                      of a host\ntogether, twice without a change between, its priority database \
                      learns what they had.\n\nExample:
  tidegate place moved backup=\"1 GiB\" scan=\"300 MiB\""
    )]
    Moved {
        /// NAME=SIZE, of each job all that has moved since it began
        #[arg(required = true, value_name = "NAME=SIZE", value_parser = parse_moved)]
        moved: Vec<(String, u64)>,
        #[command(flatten)]
        db: DbArg,
    },
    /// A job has ended, or is not wanted any more; those that wait are tried on its host
    End {
        /// The job
        name: String,
        #[command(flatten)]
        db: DbArg,
    },
    /// Hosts one by one: which there are, one more, one less, one that takes no more jobs
    #[command(subcommand)]
    Host(PlaceHostCommand),
    /// What is known of hosts: the bandwidth of each class, by how many jobs there are and of which
    /// classes
    Db {
        /// The file; that of --db or TIDEGATE_PLACE_DB where it is not named
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
        #[command(flatten)]
        db: DbArg,
    },
    /// Simulate a data centre under PCOS, first-fit, best-fit and random placement
    #[command(
        after_help = "Hosts run PriDyn on disks that are shared as fluids; the same options give \
                      the same results\non every machine. How long decisions take is told with \
                      --times.\n\nExamples:
  tidegate place sim
  tidegate place sim --hosts 100 --arrivals 10 --strategy pcos --strategy first-fit --seed 7"
    )]
    Sim(CentreArgs),
}

/// `tidegate place host`.
#[derive(Debug, Subcommand)]
pub(crate) enum PlaceHostCommand {
    /// Hosts, how many jobs run there, and what they would take
    List {
        #[command(flatten)]
        db: DbArg,
    },
    /// One more host; those that wait are tried on it
    #[command(after_help = "Example:
  tidegate place host add c --bandwidth \"54 MB/s\" --loss \"0 B/s\" --loss \"17 MB/s\" --jobs 16")]
    Add(AddHostArgs),
    /// Have a host take no more jobs; those that run there go on. Its daemon may be gone
    Drain {
        /// The host
        name: String,
        #[command(flatten)]
        db: DbArg,
    },
    /// Have a host that was drained take jobs again; those that wait are tried on it
    Resume {
        /// The host
        name: String,
        #[command(flatten)]
        db: DbArg,
    },
    /// Take a host out; its daemon is not asked, and what was learnt of it is kept for when it
    /// comes again
    #[command(
        after_help = "Jobs that run there are requeued or lost; the answer tells what came of \
                      each.\n\nExamples:
  tidegate place host remove c              no jobs run there
  tidegate place host remove c --requeue    it died: another host is looked for, for what is left \
                      of each job"
    )]
    Remove(RemoveHostArgs),
}

/// `tidegate place host add`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AddHostArgs {
    /// What it is called
    #[arg(value_parser = parse_name)]
    pub(crate) name: String,
    /// What its disk does for one job, such as "54 MB/s"
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    pub(crate) bandwidth: u64,
    /// How much less with one job on it; once more for two, and so on
    #[arg(long, value_name = "RATE", value_parser = parse_loss)]
    pub(crate) loss: Vec<u64>,
    /// As many jobs at most
    #[arg(long, value_name = "N", default_value_t = tidegate_place::MOST,
          value_parser = whole::<usize>(1..=64))]
    pub(crate) jobs: usize,
    /// The control socket of the daemon that serves its VMs
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) daemon: Option<PathBuf>,
    /// The device there; all of them unless given
    #[arg(long, value_name = "DEVICE", requires = "daemon")]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) db: DbArg,
}

/// `tidegate place host remove`.
#[derive(Debug, ClapArgs)]
pub(crate) struct RemoveHostArgs {
    /// The host
    pub(crate) name: String,
    /// Jobs that run there look for another host, for what is left of them in the time that is left
    #[arg(long, conflicts_with = "lose")]
    pub(crate) requeue: bool,
    /// Jobs that run there are given up
    #[arg(long)]
    pub(crate) lose: bool,
    #[command(flatten)]
    pub(crate) db: DbArg,
}

/// Where hosts and jobs are kept.
#[derive(Debug, ClapArgs)]
pub(crate) struct DbArg {
    /// Where hosts, jobs and what was learnt are kept; made where there is none
    #[arg(long = "db", value_name = "FILE", env = "TIDEGATE_PLACE_DB",
          value_hint = ValueHint::FilePath, default_value = "tidegate-place.redb")]
    pub(crate) path: PathBuf,
}

/// `tidegate place job`.
#[derive(Debug, ClapArgs)]
pub(crate) struct PlaceJobArgs {
    /// What it is called; job-1, job-2 and so on where this is not given
    pub(crate) name: Option<String>,
    /// What it reads and writes in all, such as "2 GiB"
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: u64,
    /// How long after its beginning it is to be done, and how long it waits at most, such as "60 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) deadline: Nanos,
    /// What it takes at most, whatever it is given, such as "20 MB/s"; all that it is given unless
    /// said
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    pub(crate) limit: Option<u64>,
    /// Start it on the daemon of the host it goes to, as the job of the VM of its name
    #[arg(long, requires = "name")]
    pub(crate) start: bool,
    /// The hosts there are, TOML; kept from then on
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hosts: Option<PathBuf>,
    /// Say what would come of it, and keep nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) db: DbArg,
}

/// `tidegate place sim`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CentreArgs {
    /// How many hosts there are
    #[arg(long, value_name = "N", default_value = "1000",
          value_parser = whole::<usize>(1..=100_000))]
    pub(crate) hosts: usize,
    /// How many jobs come a second, on average
    #[arg(long, value_name = "N", default_value_t = 100.0, value_parser = parse_arrivals)]
    pub(crate) arrivals: f64,
    /// For how long it is simulated after the warm-up, in virtual time
    #[arg(long, value_name = "TIME", default_value = "600 s", value_parser = parse_time)]
    pub(crate) length: Nanos,
    /// For how long before anything is counted
    #[arg(long, value_name = "TIME", default_value = "1200 s", value_parser = parse_time)]
    pub(crate) warm_up: Nanos,
    /// How many of the jobs cannot take all that they are given, such as 30%
    #[arg(long, value_name = "PART", default_value = "0%", value_parser = parse_part)]
    pub(crate) limited: u32,
    /// Those say what they take when they come; else it is seen once they run
    #[arg(long)]
    pub(crate) told: bool,
    /// Who decides: pcos, first-fit, best-fit or random; all of them unless said
    #[arg(long = "strategy", value_name = "NAME", value_parser = parse_strategy)]
    pub(crate) strategies: Vec<tidegate_place::centre::Strategy>,
    /// What all random choices follow from
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// Tell how long decisions take on this machine as well
    #[arg(long)]
    pub(crate) times: bool,
}

fn parse_name(text: &str) -> Result<String, String> {
    use tidegate_config::names::{NAMES, is_name};
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(NAMES.to_owned()),
    }
}

/// A loss may be nothing.
fn parse_loss(text: &str) -> Result<u64, String> {
    tidegate_units::parse_bandwidth(text).map_err(|error| error.to_string())
}

fn parse_moved(text: &str) -> Result<(String, u64), String> {
    let help = || "write NAME=SIZE, such as backup=\"1 GiB\"".to_owned();
    let (name, size) = text.split_once('=').ok_or_else(help)?;
    let bytes = tidegate_units::parse_bytes(size.trim()).map_err(|error| error.to_string())?;
    match name.trim() {
        "" => Err(help()),
        name => Ok((name.to_owned(), bytes)),
    }
}

/// Reads a part in percent, as thousandths.
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

fn parse_strategy(text: &str) -> Result<tidegate_place::centre::Strategy, String> {
    let all = tidegate_place::centre::Strategy::ALL;
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
        for strategy in tidegate_place::centre::Strategy::ALL {
            assert_eq!(parse_strategy(strategy.name()), Ok(strategy));
        }
        let said = parse_strategy("worst-fit").expect_err("there is none");
        assert_eq!(said, "one of pcos, first-fit, best-fit, random");
        assert_eq!(parse_part("30%"), Ok(300));
        assert_eq!(parse_part("2.5 %"), Ok(25));
        for text in ["30", "101%", "-1%", "NaN%", "%", "2.55%"] {
            assert!(parse_part(text).is_err(), "{text}");
        }
        assert!(parse_arrivals("0").is_err() && parse_arrivals("NaN").is_err());
    }
}
