use super::*;
use crate::frontend::vhost_user::guest_memory::testing::memfd;

const SIZE: u16 = 8;

fn region() -> Arc<InflightRegion> {
    let layout = Layout::new(2, SIZE);
    let file = layout.create().expect("memory");
    Arc::new(
        InflightRegion::map(layout, &file, 0, layout.bytes(), &Arc::default()).expect("mapped"),
    )
}

/// Reads the record of the second queue, whose ring has the used index `used`.
fn recover(region: &Arc<InflightRegion>, used: u16) -> Result<(InflightQueue, Left), Invalid> {
    let record = QueueRecord::new(region, 1, SIZE).expect("it fits");
    InflightQueue::recover(record, SIZE, used)
}

fn left(region: &Arc<InflightRegion>, used: u16) -> Vec<u16> {
    match recover(region, used).expect("it is sound").1 {
        Left::Requests(heads) => heads,
        Left::Unknown => panic!("the memory was used"),
    }
}

#[test]
fn fields_are_where_the_specification_has_them() {
    let region = region();
    let (mut queue, left) = recover(&region, 40).expect("it is new");
    assert_eq!(left, Left::Unknown);
    queue.take(3);
    queue.take(5);
    queue.end(5);
    // 16 bytes for the queue and 16 for each descriptor, in steps of 64 bytes.
    let mem = region.mem.slice(192, 192);
    assert_eq!(mem.read_once(0), [0; 8], "features");
    let fields = [8, 10, 12, 14].map(|at| mem.load_le16(at));
    assert_eq!(fields, [1, SIZE, 5, 40], "version, entries, batch, index");
    let entry = |head: usize| mem.read_once::<16>(16 + 16 * head);
    assert_eq!(entry(3), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(entry(5), [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    queue.end(3);
    assert_eq!(entry(3)[6..8], [5, 0], "next");
    queue.publish(42);
    assert_eq!(mem.load_le16(14), 42);
    assert_eq!((entry(3)[0], entry(5)[0]), (0, 0));
    // Nothing of another queue was touched.
    let other = region.mem.slice(0, 192);
    assert!((0..192).all(|at| other.read_once(at) == [0]));
}

#[test]
fn requests_are_found_in_the_order_in_which_they_were_taken() {
    let region = region();
    let (mut queue, _) = recover(&region, 0).expect("it is new");
    [6, 0, 3, 7].into_iter().for_each(|head| queue.take(head));
    queue.end(0);
    queue.publish(1);
    drop(queue);
    assert_eq!(left(&region, 1), [7, 3, 6]);
    // A later session counts on.
    let (mut queue, _) = recover(&region, 1).expect("it is sound");
    queue.take(1);
    assert_eq!(left(&region, 1), [1, 7, 3, 6]);
}

#[test]
fn a_batch_that_was_published_and_not_cleared_is_answered() {
    let region = region();
    let (mut queue, _) = recover(&region, 9).expect("it is new");
    [6, 0, 3, 7].into_iter().for_each(|head| queue.take(head));
    [0, 7].into_iter().for_each(|head| queue.end(head));
    drop(queue);
    assert_eq!(left(&region, 9), [7, 3, 0, 6], "not published");
    assert_eq!(left(&region, 11), [3, 6]);
    assert_eq!(left(&region, 11), [3, 6], "and it stays so");
}

#[test]
fn a_ring_that_began_anew_has_nothing_in_flight() {
    let region = region();
    let (mut queue, _) = recover(&region, 500).expect("it is new");
    queue.take(2);
    queue.end(2);
    queue.publish(501);
    drop(queue);
    assert_eq!(left(&region, 0), [0; 0]);
}

#[test]
fn records_that_no_back_end_writes_are_refused() {
    let region = region();
    let mem = region.mem.slice(192, 192);
    let (mut queue, _) = recover(&region, 0).expect("it is new");
    [1, 4, 2].into_iter().for_each(|head| queue.take(head));
    [4, 1].into_iter().for_each(|head| queue.end(head));
    drop(queue);
    let mut sound = [0; 192];
    mem.read(&mut sound);
    let entry = |head: usize| 16 + 16 * head;
    let first = u64::to_le_bytes;
    let cases: [(&str, u16, usize, &[u8]); 10] = [
        ("unknown version", 0, VERSION, &[2, 0]),
        ("unknown features", 0, FEATURES, &[1]),
        ("another size", 0, ENTRIES, &[7, 0]),
        ("cannot have", 0, entry(3), &[2]),
        ("cannot have", 0, entry(2) + 8, &first(1 << 63)),
        ("one place", 0, entry(2) + 8, &first(0)),
        ("as no list", 1, LAST_BATCH, &SIZE.to_le_bytes()),
        ("as no list", 2, entry(1) + 6, &[1, 0]),
        ("as no list", 2, entry(1) + 6, &[0xff, 0xff]),
        ("another ring", SIZE + 1, 0, &[0]),
    ];
    for (message, used, at, bytes) in cases {
        mem.write(&sound);
        assert!(recover(&region, 0).is_ok());
        mem.from(at).write(bytes);
        let fault = recover(&region, used).expect_err(message);
        assert!(fault.contains(message), "{fault} instead of {message}");
    }
    // A queue may be shorter than its record, but has no request beyond its end.
    mem.write(&sound);
    let record = QueueRecord::new(&region, 1, 4).expect("it fits");
    let fault = InflightQueue::recover(record, 4, 0).expect_err("descriptor 4");
    assert!(fault.contains("cannot have"), "{fault}");
}

#[test]
fn queues_that_do_not_fit_are_refused() {
    assert_eq!(
        Layout::new(64, 1024).bytes(),
        64 * (16 + 16 * 1024 + 48) + 64
    );
    let region = region();
    assert!(QueueRecord::new(&region, 1, SIZE).is_ok());
    assert!(QueueRecord::new(&region, 2, SIZE).is_err());
    assert!(QueueRecord::new(&region, 1, 16).is_err());
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let layout = Layout::new(2, SIZE);
    let file = memfd(8192);
    let map = |offset, bytes| InflightRegion::map(layout, &file, offset, bytes, &Arc::default());
    assert!(map(0, 384).is_ok(), "without a tail");
    assert!(map(4096, 448).is_ok());
    assert!(map(4096, u64::MAX).is_ok(), "the rest is not used");
    assert!(map(0, 383).is_err(), "too short");
    assert!(map(64, 448).is_err(), "no page");
    assert!(map(8192, 448).is_err(), "beyond its file");
    assert!(map(u64::MAX - 4095, 448).is_err(), "far beyond it");
    assert!(map(1 << 63, 448).is_err(), "no offset of a file");
    let largest = Layout::new(64, 1024);
    let wraps = InflightRegion::map(largest, &file, u64::MAX - 4095, u64::MAX, &Arc::default());
    assert!(wraps.is_err(), "wraps around");
    let on_disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
    on_disk.set_len(4096).expect("room");
    let refused =
        InflightRegion::map(layout, &on_disk, 0, 448, &Arc::default()).expect_err("it may block");
    assert!(refused.contains("memfd"), "{refused}");
}

#[test]
fn memory_that_is_made_cannot_be_cut_short() {
    let layout = Layout::new(1, SIZE);
    let file = layout.create().expect("memory");
    file.set_len(0).expect_err("it is sealed");
    file.set_len(1 << 20).expect_err("it is sealed");
}

#[test]
fn memory_that_is_cut_short_is_noticed() {
    let layout = Layout::new(2, SIZE);
    let file = memfd(layout.bytes());
    let map = || InflightRegion::map(layout, &file, 0, layout.bytes(), &Arc::default());
    let region = Arc::new(map().expect("mapped"));
    let (mut queue, _) = recover(&region, 0).expect("it is new");
    file.set_len(0).expect("shorter");
    assert!(!queue.is_truncated(), "nobody has looked yet");
    queue.take(1);
    assert!(queue.is_truncated());
    let fault = recover(&region, 0).expect_err("it is gone");
    assert!(fault.contains("gone"), "{fault}");
}

#[test]
fn the_cache_mode_is_kept_in_a_tail_of_this_version_alone() {
    let layout = Layout::new(2, SIZE);
    let file = memfd(4096);
    let map =
        |bytes| InflightRegion::map(layout, &file, 0, bytes, &Arc::default()).expect("mapped");
    let mode = |bytes| map(bytes).writeback();
    let whole = layout.bytes();
    assert_eq!(mode(whole), None);
    for writeback in [true, false] {
        map(whole).set_writeback(Some(writeback));
        assert_eq!(mode(whole), Some(writeback));
    }
    assert_eq!(mode(whole - 1), None, "no tail");
    let byte = |at: usize| map(whole).tail().read_once::<1>(at);
    let put = |at: usize, bytes: [u8; 1]| map(whole).tail().write_once(at, bytes);
    put(10, [9]);
    assert_eq!(mode(whole), None, "no mode");
    for (at, other) in [(0, b'T'), (8, 2)] {
        map(whole).set_writeback(Some(true));
        let before = byte(at);
        put(at, [other]);
        map(whole).set_writeback(Some(false));
        assert_eq!((mode(whole), byte(10)), (None, [WRITE_BACK]), "left alone");
        put(at, before);
        assert_eq!(mode(whole), Some(true));
    }
}

#[test]
fn one_session_at_a_time_has_the_memory() {
    let layout = Layout::new(2, SIZE);
    let file = memfd(4096);
    let map = || InflightRegion::map(layout, &file, 0, layout.bytes(), &Arc::default());
    let first = map().expect("mapped");
    let in_ring = first.lock().expect("a descriptor");
    assert!(in_ring.is_some(), "the process may open its own memory");
    let refused = map().expect_err("the first session has it");
    assert!(refused.contains("has not ended"), "{refused}");
    // A session that ends in order leaves it, also before the kernel frees the ring's file.
    drop(first);
    assert!(map().is_ok());
}

/// A session that a hypervisor has taken over could ask for the file of any disk.
#[test]
fn a_file_that_was_opened_for_reading_does_not_become_writable() {
    let record = Layout::new(1, 8).create().expect("memory");
    assert!(open_own(record.as_raw_fd()).is_some());
    let path = format!("/proc/self/fd/{}", record.as_raw_fd());
    let read = File::open(path).expect("it is there");
    assert!(open_own(read.as_raw_fd()).is_none());
    assert!(open_own(-1).is_none());
}

/// A number could become that of a disk between the check and the opening, so a disk's file in
/// memory is refused although it was opened for writing here.
#[test]
fn a_file_with_a_name_is_no_record() {
    let in_memory = std::path::Path::new("/dev/shm");
    let file = tempfile::NamedTempFile::new_in(in_memory).expect("a file system in memory");
    assert!(open_own(file.as_raw_fd()).is_none());
    let unnamed = file.into_file();
    assert!(open_own(unnamed.as_raw_fd()).is_some(), "its name is gone");
}
