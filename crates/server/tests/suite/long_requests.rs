//! Device I/Os of the maximum length that can be configured.

use crate::common::{Server, single};
use tidegate_server::config::DeviceKind;

const MIB: u64 = 1 << 20;

#[test]
fn the_longest_unaligned_device_io_finds_a_bounce_buffer() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk.raw");
    let mut config = single(dir.path(), DeviceKind::File, Some(path), 64 * MIB);
    config.devices[0].scheduling.max_io = 32 << 20;
    config.devices[0].scheduling.merge_limit = 32 << 20;
    let server = Server::start(config);
    let mut client = server.connect("disk");
    let data: Vec<u8> = (0..32 * MIB as u32).map(|i| (i / 7) as u8).collect();
    client.write(MIB + 1, &data);
    assert!(client.read(MIB + 1, 32 << 20) == data);
    server.stop().unwrap();
}
