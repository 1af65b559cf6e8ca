//! Mistakes of a user's own mix, each with its place in the file.
//!
//! A run reads a mix as text with figures replaced, which has other lines than the file. So the
//! values are replaced here in the tree that was made from the file: messages name its lines.

use super::{DEMAND, Demand, Mix};
use crate::ExperimentError;
use crate::promises::device::PromiseDevice;
use crate::promises::template;
use tidegate_config::node::{Entry, Node, Value};
use tidegate_config::{ConfigErrors, Diagnostic, Field, document, model};
use tidegate_sim::scenario::{self, Scenario};

/// Keys of a scenario that a mix must not have, with what sets them.
const NOT_IN_A_MIX: [(&str, &str); 5] = [
    ("device", "`--device` chooses it"),
    ("duration", "`--seconds` sets it"),
    ("warm_up", "it follows from the device"),
    ("seed", "`--seeds` sets it"),
    (
        "event",
        "objectives are judged as they are at the beginning",
    ),
];
/// Key of a VM that a mix must not have: its round trips.
const DELAY: &str = "delay";

/// Checks a mix on a device, for runs of up to `seconds` judged seconds.
///
/// # Errors
/// Returns every mistake with its line, the value found and the allowed values.
pub(super) fn check(mix: &Mix, device: &PromiseDevice, seconds: u64) -> Result<(), ConfigErrors> {
    let read = document::read(mix.template(), mix.file(), |root| {
        read(root, mix, device, seconds)
    })?;
    read.config.check().map_err(|error| {
        let what = format!("{}: on {}: {error}", mix.file(), device.model);
        let help = "fewer or smaller disks, or other devices with `--device`";
        ConfigErrors(vec![Diagnostic::error(what).allowing(help)])
    })
}

/// Reads the scenario of a mix with the values of its figures on a device.
fn read(root: &Field<'_>, mix: &Mix, device: &PromiseDevice, seconds: u64) -> Option<Scenario> {
    if let Err(error) = template::expand(mix.template(), device) {
        let mistake = Diagnostic::error(error.what).located_at("", &error.span);
        root.push(mistake.allowing(template::FORMS));
        return None;
    }
    let Value::Table(keys) = &root.node().value else {
        return None;
    };
    let mut set_elsewhere: Vec<(Field<'_>, &str, &str)> = Vec::new();
    for (key, why) in NOT_IN_A_MIX {
        set_elsewhere.extend(root.find(key).map(|field| (field, key, why)));
    }
    let vms = root.find("vm").and_then(|vms| vms.elements());
    for vm in vms.into_iter().flatten() {
        let delay = vm.labelled("vm").find(DELAY);
        set_elsewhere.extend(delay.map(|field| (field, DELAY, "`--rtt` sets it")));
    }
    for (field, key, why) in &set_elsewhere {
        let what = format!("a mix has no `{key}`: {why}");
        field.error(what, &format!("remove `{key}`"));
    }
    if !set_elsewhere.is_empty() {
        return None;
    }
    let mut keys = keys.clone();
    keys.retain(|entry| entry.key != DEMAND);
    for entry in &mut keys {
        replace(&mut entry.node, mix.template(), device);
    }
    let warm_up = device.warm_up.as_secs_f64();
    let until = warm_up + seconds as f64;
    keys.push(added("duration", Value::Text(format!("{until} s"))));
    keys.push(added("warm_up", Value::Text(format!("{warm_up} s"))));
    let disk = vec![
        added("name", Value::Text("disk".to_owned())),
        added("model", Value::Text(device.model.clone())),
    ];
    let disk = Value::Table(disk);
    keys.push(added(
        "device",
        Value::List(vec![Node {
            value: disk,
            span: 0..0,
        }]),
    ));
    let span = root.node().span.clone();
    let node = Node {
        value: Value::Table(keys),
        span,
    };
    let scenario = scenario::from_field(&root.with_node(&node), &model::built_in, None)?;
    check_demand(root, mix, &scenario);
    Some(scenario)
}

/// Checks that a mix demands what its VMs can give.
fn check_demand(root: &Field<'_>, mix: &Mix, scenario: &Scenario) {
    let Some(field) = root.find(DEMAND) else {
        return;
    };
    let demand = match mix.demand() {
        Ok(demand) => demand,
        Err(ExperimentError::Config(errors)) => {
            field.error(errors.to_string(), "");
            return;
        }
        Err(ExperimentError::Data { what, .. }) => {
            let what = what.lines().next().unwrap_or_default();
            let forms = "p99_within_bound = \"db\", or of_fifo = { vm = \"bulk\", percent = 90 }";
            field.error(what, forms);
            return;
        }
    };
    let Demand {
        p99_within_bound,
        of_fifo,
    } = demand;
    let names: Vec<&str> = scenario.vms.iter().map(|vm| vm.name.as_str()).collect();
    for name in p99_within_bound
        .iter()
        .chain(of_fifo.iter().map(|it| &it.vm))
    {
        if !names.contains(&name.as_str()) {
            let what = format!("there is no VM {name:?}");
            field.error(what, &format!("there are: {}", names.join(", ")));
        }
    }
    let bounded = scenario
        .vms
        .iter()
        .filter(|vm| vm.objective.latency.is_some());
    let bounded: Vec<&str> = bounded.map(|vm| vm.name.as_str()).collect();
    if let Some(name) = p99_within_bound
        && names.contains(&name.as_str())
        && !bounded.contains(&name.as_str())
    {
        let what = format!("p99_within_bound: VM {name:?} has no latency bound");
        field.error(what, "objective = { latency = \"{time 2}\" }");
    }
}

/// Replaces the figures of a value and of all below it by their values on a device.
fn replace(node: &mut Node, text: &str, device: &PromiseDevice) {
    match &mut node.value {
        Value::Text(figure) => {
            // As in a run, which replaces figures only in double quotes.
            let is_figure = text
                .get(node.span.clone())
                .is_some_and(|it| it.starts_with("\"{"));
            let inner = figure.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
            if let (true, Some(inner)) = (is_figure, inner)
                && let Ok(value) = template::value(inner, device)
            {
                *figure = value;
            }
        }
        Value::List(list) => list.iter_mut().for_each(|it| replace(it, text, device)),
        Value::Table(keys) => keys
            .iter_mut()
            .for_each(|it| replace(&mut it.node, text, device)),
        Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Date(_) | Value::Null => {}
    }
}

/// Returns a key that the file does not have.
fn added(key: &str, value: Value) -> Entry {
    Entry {
        key: key.to_owned(),
        key_span: 0..0,
        node: Node { value, span: 0..0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promises::device::devices;

    const OWN: &str = r#"title = "A database and a copy"

[demand]
p99_within_bound = "db"

[[vm]]
name = "db"
disk = [{ size = "20 GiB" }]
objective = { reservation = "{iops 5 % random read 8 KiB}", latency = "{time 2}" }
workload = [{ rw = "randread", bs = "8 KiB", iodepth = 8 }]

[[vm]]
name = "copy"
count = 2
disk = [{ size = "20 GiB" }]
workload = [{ rw = "write", bs = "1 MiB", iodepth = 8 }]
"#;

    fn device(model: &str) -> PromiseDevice {
        let all = devices().expect("they are read");
        let device = all.into_iter().find(|it| it.model == model);
        device.expect("it is among them")
    }

    #[test]
    fn a_mix_is_accepted_by_the_check_as_by_a_run() {
        use crate::promises::mixes;
        for device in devices().expect("they are read") {
            for mix in mixes().iter().chain([&Mix::own(OWN)]) {
                if let Err(errors) = mix.check(&device, 20) {
                    panic!("{} on {}: {errors}", mix.name, device.model);
                }
            }
        }
    }

    #[test]
    fn every_mistake_is_reported_with_its_line_in_the_file_and_what_is_allowed() {
        let sata = device("ssd-sata-300gb");
        for (right, wrong, line, what) in [
            ("[demand]", "[demand", 3, "not TOML"),
            ("{time 2}", "{tim 2}", 9, "{tim 2} is no figure of a mix"),
            ("{time 2}", "{time 2", 9, "a figure without its end"),
            ("read 8 KiB}", "read 8 GiB}", 9, "is no figure of a mix"),
            (
                "title",
                "duration = \"5 s\"\ntitle",
                1,
                "no `duration`: `--seconds`",
            ),
            ("count = 2", "delay = \"1 ms\"", 14, "no `delay`: `--rtt`"),
            (
                "iodepth = 8 }]\n\n",
                "iodept = 8 }]\n\n",
                10,
                "unknown key `iodept`",
            ),
            (
                "bound = \"db\"",
                "bound = \"dc\"",
                3,
                "there is no VM \"dc\"",
            ),
            (
                "bound = \"db\"",
                "bound = \"copy-1\"",
                3,
                "has no latency bound",
            ),
            (
                "p99_within_bound",
                "p99_within",
                3,
                "unknown field `p99_within`",
            ),
        ] {
            assert!(OWN.contains(right), "{right}");
            let refused = Mix::own(&OWN.replacen(right, wrong, 1)).check(&sata, 20);
            let ConfigErrors(mistakes) = refused.expect_err(wrong);
            let place = mistakes[0].place.as_ref().expect("a place");
            assert_eq!((&*place.file, place.line), ("own.toml", line), "{wrong}");
            assert!(mistakes[0].what.contains(what), "{wrong}: {}", mistakes[0]);
            let helps = mistakes[0].allowed.is_some();
            assert!(helps || what == "not TOML", "{wrong}: {}", mistakes[0]);
        }
    }

    #[test]
    fn disks_larger_than_a_device_are_refused_with_both_sizes() {
        let large = Mix::own(&OWN.replace("20 GiB", "100 GiB"));
        assert!(large.check(&device("nvme-1tb"), 20).is_ok());
        let refused = large.check(&device("ssd-sata-300gb"), 20);
        let message = refused.expect_err("300 GiB").to_string();
        for part in [
            "own.toml: on ssd-sata-300gb: ",
            "holds",
            "300 GiB",
            "--device",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
