//! Mounted file systems and swap areas of a host.

use super::HostRoot;

/// Mounted file systems and swap areas.
#[derive(Clone, Debug, Default)]
pub(super) struct Mounts {
    mounted: Vec<Mounted>,
    /// Devices of swap areas, such as `/dev/sda2`.
    swap: Vec<String>,
}

/// Mounted file system.
#[derive(Clone, Debug)]
struct Mounted {
    /// Number of its device, `major:minor`.
    number: String,
    /// Source, such as `/dev/sda1`. The number is not a disk's for file systems of many disks.
    source: String,
    /// Directory at which it is mounted.
    at: String,
}

impl Mounts {
    /// Reads `/proc/self/mountinfo` and `/proc/swaps`, proc_pid_mountinfo(5).
    pub(super) fn read(host: &HostRoot) -> Mounts {
        let mountinfo = host.read("/proc/self/mountinfo").unwrap_or_default();
        let swaps = host.read("/proc/swaps").unwrap_or_default();
        let swap = swaps
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next());
        Mounts {
            mounted: mountinfo.lines().filter_map(mounted).collect(),
            swap: swap.map(str::to_owned).collect(),
        }
    }

    /// Returns the directories at which a device is mounted, by its number and name, without those
    /// below another of its own.
    pub(super) fn of(&self, number: &str, name: &str) -> Vec<String> {
        let source = format!("/dev/{name}");
        let matching = self
            .mounted
            .iter()
            .filter(|it| it.number == number || it.source == source);
        let mut at: Vec<String> = matching.map(|mounted| mounted.at.clone()).collect();
        at.sort();
        at.dedup();
        at
    }

    /// Returns true if a device is a swap area.
    pub(super) fn is_swap(&self, name: &str) -> bool {
        self.swap.contains(&format!("/dev/{name}"))
    }
}

/// Parses a line of `mountinfo`.
fn mounted(line: &str) -> Option<Mounted> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let number = before.nth(2)?.to_owned();
    let at = unescaped(before.nth(1)?);
    let source = unescaped(after.split(' ').nth(1)?);
    Some(Mounted { number, source, at })
}

/// Replaces the octal escapes of `mountinfo`: `\040` is a space.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => whole = whole + &char::from(code).to_string() + &part[3..],
            None => whole = whole + "\\" + part,
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_escapes() {
        let line = r"36 35 98:0 / /mnt\040two rw,noatime master:1 - ext3 /dev/root\134x rw";
        let found = mounted(line).expect("a mount");
        assert_eq!(
            (
                found.number.as_str(),
                found.at.as_str(),
                found.source.as_str()
            ),
            ("98:0", "/mnt two", r"/dev/root\x")
        );
        assert!(mounted("garbage").is_none());
        assert_eq!(unescaped(r"a\é"), r"a\é");
    }
}
