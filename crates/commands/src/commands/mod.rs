//! Commands, one module each.

mod agent;
mod attainment;
mod bench;
mod calculate;
mod check;
mod cluster;
mod compare;
mod daemon_process;
mod device;
mod disk;
mod doctor;
mod explain;
mod export;
mod history;
mod import;
mod init;
mod interference;
mod man;
mod own_disk;
mod place;
mod plan;
mod policy;
mod precision;
mod profile;
mod promises;
mod rates;
mod record;
mod report;
mod reproduce;
mod runtime_directory;
mod schema;
mod serve;
mod sim;
mod stats;
mod sweep;
mod token;
mod top;
mod torture;
mod trace;
mod transfer;
mod vcpu;
mod vhost_user_blk;
mod vm;
mod what_if;
mod wording;

use anyhow::Result;

use crate::args::{Args, BenchCommand, Command, VcpuCommand};
use crate::completion;
use crate::output::{self, Output};

/// Runs the command given on the command line.
pub(crate) fn run(args: Args) -> Result<()> {
    let out = Output::new(&args.global);
    let client = || args.global.client();
    match args.command {
        Command::Serve(args) => serve::run(&args, out),
        Command::VhostUserBlk(args) => vhost_user_blk::run(&args, out),
        Command::Check { file } => check::run(&file, out),
        Command::Init(args) => init::run(&args, out),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Import(command) => import::run(&command, out),
        Command::Schema { document } => schema::run(document, out),
        Command::Plan(args) => plan::run(&args, out),
        Command::Vm(command) => vm::run(command, &client()?, out),
        Command::Export(command) => export::run(&command, &args.global, out),
        Command::Transfer(command) => transfer::run(&command, &client()?, out),
        Command::Token(command) => token::run(&command, &client()?, out),
        Command::Job(command) => {
            let what = "`job` is the old name of `transfer`, accepted for one release";
            output::tell(format_args!("note: {what}"));
            transfer::run(&command, &client()?, out)
        }
        Command::Device(command) => device::run(command, &client()?, out),
        Command::Disk(command) => disk::run(command, &client()?, out),
        Command::Policy(command) => policy::run(command, &args.global, out),
        Command::Record(command) => record::run(&command, &client()?, out),
        Command::Stats(stats) => stats::run(&stats, &client()?, out),
        Command::Top(options) => top::run(&options, &args.global, out),
        Command::History(args) => history::run(&args, &client()?, out),
        Command::Report(args) => report::run(&args, &client()?),
        Command::Explain(args) => explain::run(&args, &client()?, out),
        Command::Interference(args) => interference::run(&args, &client()?, out),
        Command::Sim(sim) => sim::run(&sim, out),
        Command::Compare(compare) => compare::run(&compare, out),
        Command::Sweep(sweep) => sweep::run(&sweep, out),
        Command::Profile(args) => profile::run(*args, out),
        Command::Reproduce(args) => reproduce::run(&args, out),
        Command::Promises(args) => promises::run(&args, out),
        Command::Agent(args) => agent::run(&args, out),
        Command::Place(command) => place::run(&command, out),
        Command::Cluster(command) => cluster::run(&command, out),
        Command::Trace(command) => trace::run(command, out),
        Command::Whatif(args) => what_if::run(&args, out),
        Command::Calculate => calculate::run(),
        Command::Vcpu(VcpuCommand::List) => vcpu::list(out),
        Command::Vcpu(VcpuCommand::Compare(args)) => vcpu::compare(&args, out),
        Command::Vcpu(VcpuCommand::Sim(args)) => vcpu::sim(&args, out),
        Command::Demo(demo) => crate::demo::run(&crate::demo::Options {
            seconds: demo.seconds,
            policies: demo.policies,
            ascii: demo.ascii,
            report: demo.report,
            write_report: report::write,
            keep: demo.keep,
            out,
        }),
        Command::Bench(BenchCommand::Engine(bench)) => bench::engine(bench, out),
        Command::Bench(BenchCommand::Counted(run)) => bench::counted(&run, out),
        Command::Torture(torture) => torture::run(&torture, out),
        Command::Man { directory } => man::run(&directory),
        Command::Completions { shell } => {
            let script = completion::script(shell)?;
            Ok(out.text(&String::from_utf8_lossy(&script))?)
        }
    }
}
