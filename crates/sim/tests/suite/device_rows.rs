//! Rows of devices: their load in each interval.

use crate::common::{DISK, good, near};
use crate::world::with;
use tidegate_core::time::Nanos;
use tidegate_sim::report::DeviceRow;
use tidegate_sim::world::World;

#[test]
fn rows_of_devices_add_up_to_the_report_and_leave_out_nothing_at_the_warm_up() {
    let text = DISK.to_owned() + &with("a", "rw = \"randread\"\niodepth = 4");
    let rows_of = |scenario: &str, interval| {
        let mut world = World::new(good(scenario), Some(interval));
        world.keep_device_rows();
        let mut rows = Vec::new();
        while !world.is_over() {
            world.step(&mut |_| {});
            rows.extend(world.take_device_rows());
        }
        (rows, world.report())
    };
    let (rows, report) = rows_of(&text, Nanos::from_millis(700));
    let sum = |value: fn(&DeviceRow) -> f64| -> f64 {
        let spans = rows
            .iter()
            .map(|row| value(row) * (row.time_s - row.began_s));
        spans.sum::<f64>() / report.duration_s
    };
    let device = &report.devices[0];
    near(sum(|row| row.iops), device.iops, 1e-6);
    near(sum(|row| row.busy), device.busy, 1e-6);
    near(sum(|row| row.depth), device.depth, 1e-6);
    // The warm-up clears the counts within an interval, of which the row has both parts.
    let warm = format!("warm_up = \"10 s\"\n{text}");
    let (with_warm_up, _) = rows_of(&warm, Nanos::from_millis(700));
    assert_eq!(with_warm_up.len(), rows.len());
    for (a, b) in with_warm_up.iter().zip(&rows) {
        near(a.iops, b.iops, 1e-6);
        near(a.busy, b.busy, 1e-6);
    }
}
