//! Shard of a process that Slurm or Kubernetes started, by the variables that they set.
//!
//! ```text
//!   Slurm array task    SLURM_ARRAY_TASK_ID, _MIN, _MAX, _STEP, _COUNT   I = (ID - MIN) / STEP + 1
//!     MIN is 0 or 1
//!     with TIDEGATE_SHARDS, which is N                                   I = ID
//!   Kubernetes Job      JOB_COMPLETION_INDEX, TIDEGATE_SHARDS (N)        I = INDEX + 1
//! ```

use anyhow::Result;

use crate::args::Shard;
use crate::problem::Problem;

/// Number of shards. Kubernetes has no variable for it.
const SHARDS: &str = "TIDEGATE_SHARDS";
/// Index of a task in its array.
const TASK: &str = "SLURM_ARRAY_TASK_ID";
/// Lowest index of the tasks that were submitted together.
const FIRST_TASK: &str = "SLURM_ARRAY_TASK_MIN";
/// Index of a pod in its Job, from 0.
const POD: &str = "JOB_COMPLETION_INDEX";

/// Returns the shard of this process.
///
/// # Errors
/// If the variables name no shard.
pub(super) fn shard() -> Result<Shard> {
    let variable =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    shard_by(&Variables(&variable))
}

/// Variables of a process.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// Returns the number in a variable, if that is set.
    fn number(&self, name: &str) -> Result<Option<u32>> {
        let Some(text) = (self.0)(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                let what = format!("{name} is {text:?}, not a whole number");
                Err(refused(what, GIVE_A_SHARD))
            }
        }
    }

    /// Returns the number in a variable that a Slurm array task has.
    fn of_array(&self, name: &str) -> Result<u32> {
        self.number(name)?.ok_or_else(|| {
            let what = format!("{TASK} is set, but {name} is not");
            let help = format!("set {SHARDS} to N, with --array=1-N; or {GIVE_A_SHARD}");
            refused(what, &help)
        })
    }
}

const GIVE_A_SHARD: &str = "give the shard as --shard I/N";

fn refused(what: String, help: &str) -> anyhow::Error {
    Problem::new(what).at("--shard auto").help(help).into()
}

fn shard_by(variables: &Variables<'_>) -> Result<Shard> {
    let shards = variables.number(SHARDS)?;
    match (variables.number(TASK)?, variables.number(POD)?) {
        (Some(task), None) => match shards {
            Some(shards) => task_of(task, shards),
            None => task_of_array(variables, task),
        },
        (None, Some(pod)) => pod_of(pod, shards),
        (Some(task), Some(pod)) => {
            let what = format!("{TASK} is {task} and {POD} is {pod}: one of them names the shard");
            Err(refused(what, GIVE_A_SHARD))
        }
        (None, None) => {
            let what = format!("neither {TASK} nor {POD} is set");
            let help = format!(
                "run it as a Slurm array (sbatch --array=1-N) or an indexed Kubernetes Job; or \
                 {GIVE_A_SHARD}"
            );
            Err(refused(what, &help))
        }
    }
}

/// Returns the shard of an array task whose array may be a part of the tasks `1` to `shards`.
fn task_of(task: u32, shards: u32) -> Result<Shard> {
    Shard::new(task, shards).ok_or_else(|| {
        let what = format!("{TASK} is {task}, and {SHARDS} is {shards}");
        let help = format!("with {SHARDS} set to N, array tasks are numbered from 1: --array=1-N");
        refused(what, &help)
    })
}

/// Returns the shard of a task by the range of its whole array.
fn task_of_array(variables: &Variables<'_>, task: u32) -> Result<Shard> {
    let first = variables.of_array(FIRST_TASK)?;
    let last = variables.of_array("SLURM_ARRAY_TASK_MAX")?;
    let count = variables.of_array("SLURM_ARRAY_TASK_COUNT")?;
    let step = variables.number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1);
    // Place of a task from 0, if the array has it.
    let place = |task: u32| {
        let distance = task.checked_sub(first)?;
        (step > 0 && distance.is_multiple_of(step)).then(|| distance / step)
    };
    let is_range = place(last).is_some_and(|place| place.checked_add(1) == Some(count));
    let index = place(task).filter(|_| is_range);
    let shard = index.and_then(|index| Shard::new(index.checked_add(1)?, count));
    let help = format!(
        "use --array=1-N; to run single tasks again, set {SHARDS} to the N of all tasks; or \
         {GIVE_A_SHARD}"
    );
    // `--array=5` is task 5 of an array once more, and no sweep of one shard.
    if first > 1 {
        let what = format!("{FIRST_TASK} is {first}: this is a part of an array");
        return Err(refused(what, &help));
    }
    shard.ok_or_else(|| {
        let what = format!(
            "task {task} of a Slurm array of {count} tasks from {first} to {last} with step {step} \
             names no shard, because the array is no range"
        );
        refused(what, &help)
    })
}

/// Returns the shard of a pod.
fn pod_of(pod: u32, shards: Option<u32>) -> Result<Shard> {
    let help = format!("set {SHARDS} in the pod's `env` to the `completions` of its Job");
    let Some(shards) = shards else {
        let what = format!("{POD} is {pod}, but {SHARDS} is not set");
        return Err(refused(what, &help));
    };
    let shard = pod
        .checked_add(1)
        .and_then(|index| Shard::new(index, shards));
    shard.ok_or_else(|| {
        let what = format!("{POD} is {pod}, and {SHARDS} is {shards}: pods count from 0");
        refused(what, &help)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shard by variables given as `NAME=VALUE`, with `T_` for `SLURM_ARRAY_TASK_`.
    fn shard_with(variables: &str) -> Result<String, String> {
        let variables = variables.replace("T_", "SLURM_ARRAY_TASK_");
        let find = |name: &str| {
            let mut all = variables.split_whitespace();
            let value = all.find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            value.map(str::to_owned)
        };
        let shard = shard_by(&Variables(&find));
        shard.map(|it| it.to_string()).map_err(|it| it.to_string())
    }

    #[test]
    fn an_array_task_has_its_place_in_the_array() {
        for (variables, shard) in [
            ("T_ID=1 T_MIN=1 T_MAX=10 T_COUNT=10 T_STEP=1", "1/10"),
            ("T_ID=10 T_MIN=1 T_MAX=10 T_COUNT=10", "10/10"),
            ("T_ID=0 T_MIN=0 T_MAX=9 T_COUNT=10 T_STEP=1", "1/10"),
            ("T_ID=5 T_MIN=1 T_MAX=9 T_COUNT=3 T_STEP=4", "2/3"),
            ("T_ID=1 T_MIN=1 T_MAX=1 T_COUNT=1 T_STEP=1", "1/1"),
            // Tasks 3 and 7 of ten once more.
            (
                "T_ID=7 T_MIN=3 T_MAX=7 T_COUNT=2 T_STEP=4 TIDEGATE_SHARDS=10",
                "7/10",
            ),
        ] {
            assert_eq!(shard_with(variables).as_deref(), Ok(shard), "{variables}");
        }
    }

    #[test]
    fn a_pod_counts_from_0_and_needs_the_number_of_pods() {
        let shard = shard_with("JOB_COMPLETION_INDEX=0 TIDEGATE_SHARDS=4");
        assert_eq!(shard.as_deref(), Ok("1/4"));
        let shard = shard_with("JOB_COMPLETION_INDEX=3 TIDEGATE_SHARDS=4");
        assert_eq!(shard.as_deref(), Ok("4/4"));
    }

    #[test]
    fn variables_that_name_no_shard_are_told_with_their_values() {
        for (variables, parts) in [
            ("", &["neither", "--array=1-N", "--shard I/N"][..]),
            ("TIDEGATE_SHARDS=4", &["neither"]),
            ("T_ID=x", &["SLURM_ARRAY_TASK_ID is \"x\"", "whole number"]),
            ("T_ID=1", &["SLURM_ARRAY_TASK_MIN is not"]),
            ("T_ID=1 T_MIN=1 T_MAX=4", &["SLURM_ARRAY_TASK_COUNT is not"]),
            // --array=1,2,7
            (
                "T_ID=7 T_MIN=1 T_MAX=7 T_COUNT=3 T_STEP=1",
                &["task 7", "from 1 to 7", "no range", "TIDEGATE_SHARDS"],
            ),
            ("T_ID=4 T_MIN=1 T_MAX=7 T_COUNT=3 T_STEP=2", &["no range"]),
            // --array=5, and --array=3-4
            (
                "T_ID=5 T_MIN=5 T_MAX=5 T_COUNT=1 T_STEP=1",
                &[
                    "SLURM_ARRAY_TASK_MIN is 5",
                    "part of an array",
                    "TIDEGATE_SHARDS",
                ],
            ),
            (
                "T_ID=4 T_MIN=3 T_MAX=4 T_COUNT=2",
                &["SLURM_ARRAY_TASK_MIN is 3"],
            ),
            ("T_ID=1 T_MIN=1 T_MAX=1 T_COUNT=1 T_STEP=0", &["no range"]),
            ("T_ID=0 T_MIN=1 T_MAX=3 T_COUNT=3", &["no range"]),
            (
                "T_ID=0 TIDEGATE_SHARDS=10",
                &[
                    "SLURM_ARRAY_TASK_ID is 0",
                    "TIDEGATE_SHARDS is 10",
                    "from 1",
                ],
            ),
            (
                "JOB_COMPLETION_INDEX=3",
                &["JOB_COMPLETION_INDEX is 3", "TIDEGATE_SHARDS is not set"],
            ),
            (
                "JOB_COMPLETION_INDEX=4 TIDEGATE_SHARDS=4",
                &["is 4, and TIDEGATE_SHARDS is 4", "completions"],
            ),
            (
                "JOB_COMPLETION_INDEX=4294967295 TIDEGATE_SHARDS=4",
                &["from 0"],
            ),
            ("T_ID=1 JOB_COMPLETION_INDEX=0", &["one of them"]),
        ] {
            let message = shard_with(variables).expect_err(variables);
            for part in parts {
                assert!(message.contains(part), "{variables}: {message}");
            }
        }
    }
}
