//! Shell completion: the scripts that shells source, and the candidates that they ask for.
//!
//! The script calls `tidegate` with [`VARIABLE`] set and the words typed so far. clap finds the
//! argument under the cursor; the completers below know names that the grammar does not have: VMs,
//! devices and exports of a running daemon, policies, device models and papers.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::Value;
use tidegate_device::catalogue;
use tidegate_experiments::{papers, promises};
use tidegate_policies::policy::{controllers, dispatchers, registry, regulators};
use tidegate_server::config::DEFAULT_CONTROL_SOCKET;
use tidegate_server::control::view;

use crate::client::Client;

/// Environment variable with the shell's name, set while a shell asks for candidates. clap's own
/// name for it, `COMPLETE`, might be set for another program.
const VARIABLE: &str = "TIDEGATE_COMPLETE";

/// Program that the scripts call: the one in the `PATH`, because packages make the scripts before
/// the program is at its place.
const PROGRAM: &str = "tidegate";

/// Time-out of the daemon's answer: the user waits at the prompt.
const TIMEOUT: Duration = Duration::from_millis(300);

/// Returns the script for `shell`.
pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let writer = (shells.completer(&shell.to_string())).ok_or(io::ErrorKind::Unsupported)?;
    writer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    if shell == Shell::Zsh {
        // As a file in the fpath the script runs as the body of the function `_tidegate`, at the
        // first completion, which it has to answer, too.
        script.extend_from_slice(
            b"\n[[ \"${funcstack[1]}\" = _tidegate ]] && _clap_dynamic_completer_tidegate \"$@\"\n",
        );
    }
    Ok(script)
}

/// Prints candidates by `grammar` and exits if a shell asks for them; otherwise does nothing.
pub(crate) fn answer_shell(grammar: fn() -> clap::Command) {
    CompleteEnv::with_factory(|| offered(grammar()))
        .var(VARIABLE)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .complete();
}

/// Returns the part of the grammar to complete with. Options are offered once a word begins with
/// `-`, or where nothing else fits: with them, a single VM would never be completed at once.
fn offered(mut command: clap::Command) -> clap::Command {
    if word_at_cursor().is_some_and(|word| word.is_empty()) {
        command.build();
        command = without_options(command);
    }
    command
}

/// Hides all options, so that clap offers them only where it has nothing else.
fn without_options(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| {
            let hidden = arg.is_hide_set() || !arg.is_positional();
            arg.hide(hidden)
        })
        .mut_subcommands(without_options)
}

/// Returns the command line that is being completed, without the script's own words.
fn words() -> Vec<OsString> {
    let words = std::env::args_os().skip_while(|word| word != "--");
    words.skip(1).collect()
}

/// Returns the word being completed. bash and zsh tell its place; for other shells it is the last.
fn word_at_cursor() -> Option<OsString> {
    let words = words();
    let index = std::env::var("_CLAP_COMPLETE_INDEX").ok();
    match index.and_then(|index| index.parse::<usize>().ok()) {
        Some(index) => words.get(index).cloned(),
        None => words.last().cloned(),
    }
}

/// Returns the control socket that the command would use.
fn socket(words: &[OsString]) -> PathBuf {
    let mut typed = None;
    for (index, word) in words.iter().enumerate() {
        if word == "--socket" {
            // bash splits words at `=`.
            let value = words[index + 1..].iter().find(|next| *next != "=");
            typed = value.cloned().or(typed);
        } else if let Some(path) = word.to_str().and_then(|w| w.strip_prefix("--socket=")) {
            typed = Some(path.into());
        }
    }
    typed
        .or_else(|| std::env::var_os("TIDEGATE_SOCKET"))
        .map_or_else(|| DEFAULT_CONTROL_SOCKET.into(), PathBuf::from)
}

/// Objects of a running daemon.
#[derive(Clone, Copy, Debug)]
enum Object {
    Vm,
    Device,
    Export,
}

impl Object {
    /// Asks the daemon for the names of all objects; returns none if it does not answer in time.
    fn names(self, socket: &Path) -> Vec<String> {
        let path = match self {
            Object::Vm | Object::Export => "/v1/vms",
            Object::Device => "/v1/devices",
        };
        let answer = Client::new(socket).and_then(|client| client.get_within(path, TIMEOUT));
        let Ok(Value::Array(objects)) = answer else {
            return Vec::new();
        };
        let name = |object: &Value, key: &str| Some(object.get(key)?.as_str()?.to_owned());
        let names: Vec<String> = match self {
            Object::Vm | Object::Device => (objects.iter())
                .filter_map(|object| name(object, "name"))
                .collect(),
            Object::Export => (objects.iter())
                .filter_map(|vm| vm.get("disks")?.as_array())
                .flatten()
                .filter_map(|disk| name(disk, "export"))
                .collect(),
        };
        names.into_iter().filter(|name| is_plain(name)).collect()
    }
}

/// True if no shell needs quotes around `name`. Other names, which only exports may have, are not
/// offered, because each shell would have them quoted in another way.
fn is_plain(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_alphanumeric() || "-_./@+,".contains(c))
}

/// Returns the names that begin with `current`.
fn matching<'a>(
    names: impl IntoIterator<Item = &'a str>,
    current: &OsStr,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let fit = |name: &&str| name.starts_with(&*current);
    names
        .into_iter()
        .filter(fit)
        .map(CompletionCandidate::new)
        .collect()
}

/// Returns the completer of an object of the daemon.
fn of_daemon(object: Object) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let names = object.names(&socket(&words()));
        matching(names.iter().map(String::as_str), current)
    })
}

/// Returns the completer of names of VMs.
pub(crate) fn vms() -> ArgValueCompleter {
    of_daemon(Object::Vm)
}

/// Returns the completer of names of devices.
pub(crate) fn devices() -> ArgValueCompleter {
    of_daemon(Object::Device)
}

/// Returns the completer of export names of disks.
pub(crate) fn exports() -> ArgValueCompleter {
    of_daemon(Object::Export)
}

/// Returns the completer of policies: by name, and from the first `+` on by parts.
pub(crate) fn policies() -> ArgValueCompleter {
    ArgValueCompleter::new(policies_from)
}

/// Returns the completer of policies and single parts.
pub(crate) fn policies_and_parts() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut candidates = policies_from(current);
        let typed = current.to_string_lossy();
        for part in view::policy_parts() {
            let known = candidates.iter().any(|c| c.get_value() == &*part.name);
            // A part may have the name of a policy, which is offered already.
            if !known && part.name.starts_with(&*typed) {
                let help = format!("{}: {}", part.role, part.summary);
                candidates.push(CompletionCandidate::new(part.name).help(Some(help.into())));
            }
        }
        candidates
    })
}

/// Returns the policies that begin with `current`. Compositions of parts are many: they are offered
/// once `current` has a `+`.
fn policies_from(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    if !current.contains('+') {
        let fit = registry().iter().filter(|i| i.name.starts_with(&*current));
        return fit
            .map(|info| CompletionCandidate::new(info.name).help(Some(info.summary.into())))
            .collect();
    }
    let pairs: Vec<String> = (regulators().iter())
        .flat_map(|r| (dispatchers().iter()).map(move |d| format!("{}+{}", r.name, d.name)))
        .collect();
    let controlled = (controllers().iter())
        .flat_map(|c| pairs.iter().map(move |pair| format!("{}+{pair}", c.name)));
    let all: Vec<String> = pairs.iter().cloned().chain(controlled).collect();
    matching(all.iter().map(String::as_str), OsStr::new(&*current))
}

/// Returns the completer of device models of the catalogue, and of files with others.
pub(crate) fn models() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut candidates = matching(catalogue::names(), current);
        candidates.extend(PathCompleter::any().complete(current));
        candidates
    })
}

/// Returns the completer of device models of the catalogue.
pub(crate) fn catalogue_models() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| matching(catalogue::names(), current))
}

/// Returns the completer of mixes of VMs, and of files with others.
pub(crate) fn mixes() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let names = promises::mixes().iter().map(|mix| &*mix.name);
        let mut candidates = matching(names, current);
        candidates.extend(PathCompleter::any().complete(current));
        candidates
    })
}

/// Returns the completer of papers.
pub(crate) fn paper_names() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let current = current.to_string_lossy();
        let fit = papers()
            .iter()
            .filter(|paper| paper.name.starts_with(&*current));
        fit.map(|paper| CompletionCandidate::new(paper.name).help(Some(paper.title.into())))
            .collect()
    })
}

#[cfg(test)]
mod tests;
