//! Reader of the file of hosts, `--hosts`.

use std::path::Path;

use anyhow::Result;
use tidegate_cluster::{HostList, HostRecord};
use tidegate_config::{Field, Names, Section, document};
use tidegate_place::{Bandwidth, MAX_VMS};

use crate::output::tell;
use crate::problem::Problem;

/// Maximum bandwidth in bytes a second (1 EB/s); more is taken for a typing error.
const RATE_MAX: u64 = 1_000_000_000_000_000_000;

/// Reads the hosts in a file.
pub(in crate::commands) fn read(file: &Path) -> Result<HostList> {
    let text = document::read_text(file).map_err(|what| Problem::new(what).at("--hosts"))?;
    let loaded = document::read(&text, &file.display().to_string(), hosts)?;
    let refusal = loaded.warnings.iter().chain(&loaded.notes);
    refusal.for_each(tell);
    let mut read = loaded.config;
    let base = file.parent().unwrap_or(Path::new(""));
    for socket in read
        .hosts
        .iter_mut()
        .filter_map(|host| host.socket.as_mut())
    {
        *socket = from_anywhere(&base.join(&*socket))?;
    }
    Ok(read)
}

/// Returns a socket's absolute path, valid for later runs in other directories.
pub(super) fn from_anywhere(socket: &Path) -> Result<String> {
    let path = std::path::absolute(socket);
    let path =
        path.map_err(|error| Problem::new(error.to_string()).at(socket.display().to_string()))?;
    Ok(path.display().to_string())
}

fn hosts(root: &Field<'_>) -> Option<HostList> {
    let mut section = Section::open(root)?;
    let grace = section.read("grace", None, |field| field.thousandths().map(Some));
    let mut names = Names::default();
    let fields = section.take_tables("host");
    if fields.is_empty() {
        section.error(
            "no [[host]] section",
            "add a [[host]] with name and bandwidth for each host",
        );
    }
    let hosts: Vec<_> = fields.iter().map(|field| host(field, &mut names)).collect();
    section.finish();
    Some(HostList {
        hosts: hosts.into_iter().collect::<Option<_>>()?,
        grace: grace?,
    })
}

fn host(field: &Field<'_>, names: &mut Names) -> Option<HostRecord> {
    let field = field.labelled("host");
    let mut section = Section::open(&field)?;
    let name = section.require_unique_name("host", "a", names);
    let bandwidth = section
        .need(
            "bandwidth",
            "the disk's bandwidth with one job: bandwidth = \"150 MB/s\"",
        )
        .and_then(|field| field.bandwidth(1..=RATE_MAX));
    let loss = section.read("loss", Vec::new(), |field| {
        let losses = field.elements()?;
        losses
            .iter()
            .map(|loss| loss.bandwidth(0..=RATE_MAX))
            .collect()
    });
    let jobs = section.read("jobs", MAX_VMS as u64, |field| {
        field.count(1..=MAX_VMS as u64)
    });
    let socket = section.read("socket", None, |field| {
        let path = field.text()?;
        if path.is_empty() {
            field.error(
                "the path is empty",
                "a control socket, such as \"/run/tidegate/control.sock\"",
            );
            return None;
        }
        Some(Some(path.to_owned()))
    });
    let device = section.read("device", None, |field| field.name().map(Some));
    if let (Some(Some(_)), Some(None)) = (&device, &socket) {
        section.error(
            "`device` needs the daemon's `socket`",
            "add socket = \"PATH\", the daemon's control socket",
        );
    }
    if let (Some(max), Some(loss)) = (bandwidth, &loss)
        && let Err(error) = Bandwidth::new(max, loss)
    {
        section.error(
            error.to_string(),
            "give the loss with one job, with two, and so on",
        );
    }
    section.finish();
    Some(HostRecord {
        socket: socket?,
        device: device?,
        ..HostRecord::new(name?, bandwidth?, loss?, jobs? as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        document::read(text, "place.toml", hosts)
            .map(|_| ())
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn a_file_of_hosts_is_read() {
        let text = "[[host]]\nname = \"a\"\nbandwidth = \"54 MB/s\"\n\
                    loss = [\"0 B/s\", \"17 MB/s\"]\njobs = 3\n[[host]]\nname = \"b\"\n\
                    bandwidth = \"1 GB/s\"\n";
        let read = document::read(text, "place.toml", hosts)
            .expect("it is one")
            .config;
        let host = |name: &str, bandwidth, loss: &[u64], jobs| {
            HostRecord::new(name.to_owned(), bandwidth, loss.to_vec(), jobs)
        };
        let expected = [
            host("a", 54_000_000, &[0, 17_000_000], 3),
            host("b", 1_000_000_000, &[], MAX_VMS),
        ];
        assert_eq!((read.hosts.as_slice(), read.grace), (&expected[..], None));
        let text = format!("grace = \"0 %\"\n{text}");
        let read = document::read(&text, "place.toml", hosts).expect("it is one");
        assert_eq!(read.config.grace, Some(0));
        assert!(refusal("grace = 1\n").contains('%'));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let text = refusal("[[host]]\nname = \"a\"\nbandwidth = 54\nlos = 1\n");
        assert!(
            text.contains("place.toml:3") && text.contains("unit is missing"),
            "{text}"
        );
        assert!(text.contains("did you mean `loss`?"), "{text}");
        assert!(refusal("").contains("no [[host]] section"));
        let text =
            refusal("[[host]]\nname = \"a\"\nbandwidth = \"54 MB/s\"\nloss = [\"54 MB/s\"]\n");
        assert!(text.contains("leaves nothing"), "{text}");
        let two = "[[host]]\nname = \"a\"\nbandwidth = \"54 MB/s\"\n".repeat(2);
        assert!(refusal(&two).contains('a'));
        let text = refusal("[[host]]\nname = \"a\"\nbandwidth = \"54 MB/s\"\ndevice = \"sdb\"\n");
        assert!(text.contains("control socket"), "{text}");
        let text = refusal("[[host]]\nname = \"a\"\nbandwidth = \"54 MB/s\"\nsocket = \"\"\n");
        assert!(text.contains("socket"), "{text}");
        let text = refusal("[[host]]\nname = \"a\"\nbandwidth = \"54 MB/s\"\njobs = 65\n");
        assert!(text.contains("from 1 to 64"), "{text}");
    }
}
