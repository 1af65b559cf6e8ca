//! JSON Schema of the configuration file.

use serde_json::Value;

use super::keys;

/// Returns the JSON Schema (draft 2020-12) of the file that `tidegate serve` reads.
pub fn schema() -> Value {
    let title = "Configuration of tidegate serve";
    tidegate_config::schema::json_schema(&keys::FILE, title, Vec::new())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_testkit::schema::{
        Checker, assert_misspelt_keys_are_refused, assert_schema_defaults_are_valid, files,
        without_required,
    };

    use super::*;
    use crate::config::parse;

    fn repository() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    /// Returns the TOML blocks in a page of the documentation.
    fn blocks(page: &str) -> impl Iterator<Item = &str> {
        let starts = page.split("```toml\n").skip(1);
        starts.filter_map(|rest| rest.split_once("```").map(|(block, _)| block))
    }

    /// Returns the headings that a block of the documentation presupposes.
    fn above(block: &str) -> &'static str {
        match block {
            _ if block.starts_with("[[vm.disk.") => "[[vm]]\n[[vm.disk]]\n",
            _ if block.starts_with("[vm.") => "[[vm]]\n",
            _ => "",
        }
    }

    /// Configuration with every table once.
    const WHOLE: &str = r#"
[daemon]
open_timeout = "10 s"
[paths]
allow = ["/srv/vms"]
[control]
socket = "c.sock"
mode = "660"
operate = ["group:storage"]
[[control.listen]]
unix = "people.sock"
mode = "0666"
read = ["user:alice"]
root_role = "read"
[[control.listen]]
tcp = "0.0.0.0:9808"
[control.listen.tls]
certificate = "server.pem"
private_key = "server.key"
[store]
path = "tidegate.redb"
[history]
enabled = true
directory = "h"
max_size = "64 MiB"
[recording]
max_size = "2 GiB"
[cluster]
host = "a"
etcd = ["https://10.0.0.1:2379"]
user = "tidegate"
password_file = "etcd.password"
ca = "ca.pem"
certificate = "client.pem"
private_key = "client.key"
lease = "20 s"
[exchange]
cluster = "east"
host = "a"
nats = ["tls://nats-1.example:4222"]
ca = "ca.pem"
certificate = "a.pem"
private_key = "a.key"
user = "a"
password_file = "a.password"
[[exchange.entitlement]]
array = "san"
host = "a"
weight_max = 100
[[metrics]]
tcp = "127.0.0.1:9809"
[metrics.tls]
certificate = "server.pem"
private_key = "server.key"
client_ca = "ca.pem"
[[metrics]]
unix = "metrics.sock"
mode = "0660"
[[dashboard]]
tcp = "127.0.0.1:9807"
host_names = ["storage.example"]
[[listen]]
unix = "nbd.sock"
exports = ["a"]
[[listen]]
tcp = "[::1]:10809"
[listen.tls]
certificate = "server.pem"
private_key = "server.key"
client_ca = "ca.pem"
[[listen.tls.client]]
names = ["host-a.example"]
vms = ["a"]
[[device]]
name = "d"
kind = "emulated"
model = "hdd-7200-1tb"
depth = 4
max_io = "1 MiB"
learn_cap = false
policy = { name = "mclock", cost_size = "64 KiB", background_after = "0 s" }
[[device.limit_group]]
name = "logs"
limit = "40 MB/s"
[[vm]]
name = "a"
device = "d"
max_connections = 3
[vm.objective]
reservation = "120 IOPS @ 16 KiB"
target = "none"
latency = "30ms"
weight = 7
priority = "best-effort 0"
timezone = "UTC"
[vm.objective.limit]
total = "2000 iops, 60.5 MB/s"
[vm.objective.limit.burst]
total = "4000 IOPS"
length = "2 s"
[vm.objective.group]
name = "qfs"
[vm.objective.expects]
reads = "70 %"
access = "12.5 % sequential"
size = "16 KiB"
[[vm.objective.schedule]]
from = "18:00"
until = "24:00"
days = ["mon", "sun"]
limit = { write = "9 MB/s" }
[[vm.objective.schedule]]
at = 2026-12-01T18:00:00
weight = 300
[[vm.workload]]
rw = "randread"
[[vm.disk]]
size = "1 GiB"
block_size = "4 KiB"
limit = { read = "300 IOPS" }
limit_group = "logs"
[[vm.disk.fault]]
operations = ["write", "discard"]
from = "512 MiB"
length = "64 KiB"
probability = "0.1 %"
seed = 7
duration = "5 s"
stall = "2 s"
error = "EIO"
[[device]]
name = "r"
kind = "nbd"
[[vm]]
name = "b"
device = "r"
[[vm.disk]]
uri = "nbds://192.0.2.1/b"
[vm.disk.tls]
ca = "ca.pem"
certificate = "client.pem"
private_key = "client.key"
server_name = "storage.example"
"#;

    #[test]
    fn the_schema_accepts_every_table_and_refuses_a_misspelt_key_of_each_as_the_reader_does() {
        let read = |text: &str| {
            let read = parse(text, "f.toml", Path::new("/"));
            read.map(|_| ()).map_err(|refused| refused.to_string())
        };
        let headings = assert_misspelt_keys_are_refused(schema(), WHOLE, read);
        let sections = keys::sections().len();
        assert_eq!(headings.len(), sections - 1, "all but the top level");
        let typo = "[[listen]]\nunix = \"s\"\n[[devise]]\nname = \"d\"\nkind = \"memory\"\n";
        assert!(read(typo).is_err());
        assert!(Checker::new(schema()).check_toml(typo).is_err());
    }

    #[test]
    fn examples_and_documentation_go_by_the_schema() {
        let (whole, part) = (
            Checker::new(schema()),
            Checker::new(without_required(schema())),
        );
        let mut checked = 0;
        let mut check = |checker: &Checker, text: &str, place: &str| {
            assert_eq!(checker.check_toml(text), Ok(()), "{place}:\n{text}");
            checked += 1;
        };
        for path in files(&repository().join("examples"), "toml") {
            let text = std::fs::read_to_string(&path).expect("readable");
            if text.contains("[[listen]]") {
                check(&whole, &text, &path.display().to_string());
            }
        }
        for path in files(&repository().join("docs"), "md") {
            let page = std::fs::read_to_string(&path).expect("readable");
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_configurations = name.starts_with("configuration");
            for block in blocks(&page) {
                let place = path.display().to_string();
                if block.contains("[[listen]]") {
                    check(&whole, block, &place);
                } else if is_configurations && block.starts_with('[') {
                    // A block that lists alternative values of one key is no valid document.
                    check(&part, &format!("{}{block}", above(block)), &place);
                }
            }
        }
        assert!(checked >= 11, "only {checked}");
    }

    #[test]
    fn defaults_are_values_of_their_keys() {
        assert_schema_defaults_are_valid(schema(), &keys::FILE.with_inner()[1..]);
        let wrong = serde_json::json!({ "daemon": { "open_timeout": "30" } });
        let checker = Checker::new(without_required(schema()));
        assert!(checker.check(&wrong).is_err(), "a figure without its unit");
    }
}
