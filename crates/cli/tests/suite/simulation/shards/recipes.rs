//! Recipes of the documentation for sweeps on several machines.

use std::fs;
use std::path::Path;

use super::{Place, SMALL, text};

/// Returns the shell commands of the documentation that have a word, with fewer seeds.
fn recipe(word: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sweeps.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let blocks = page.split("```sh\n").skip(1);
    let mut blocks = blocks.filter_map(|block| Some(block.split_once("```")?.0));
    let block = blocks.find(|block| block.contains(word));
    let block = block.unwrap_or_else(|| panic!("no recipe has {word}"));
    assert!(block.contains("--seeds 1..100"), "{block}");
    block.replace("1..100", "1..2")
}

#[test]
fn the_recipes_of_the_documentation_work() {
    let place = Place::new();
    place.write("my.toml", SMALL);
    let sweep = [
        "sweep",
        "my.toml",
        "--policy",
        "fifo,mclock",
        "--seeds",
        "1..2",
    ];
    let (whole, _) = place.done(&sweep);
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = program
        .parent()
        .map(Path::to_owned)
        .into_iter()
        .chain(std::env::split_paths(&folders));
    let path = std::env::join_paths(folders).expect("a path");
    let run = |script: &str, variables: &[(&str, &str)]| {
        let mut command = place.command(Path::new("sh"), &["-e", "-c", script]);
        command.env("PATH", &path).envs(variables.iter().copied());
        let done = command.output().expect("a shell runs");
        assert!(done.status.success(), "{script}: {}", text(&done.stderr));
        text(&done.stdout)
    };
    // Without the line for GNU parallel, which not every machine has.
    let xargs = recipe("xargs");
    let (parallel, rest) = xargs.split_once('\n').expect("several lines");
    assert!(parallel.ends_with("--list | parallel"), "{parallel}");
    assert_eq!(run(rest, &[]), whole);
    fs::remove_dir_all(place.path().join("results")).expect("removed");

    let script = recipe("#SBATCH --array=1-10");
    // The tasks behind these have none of the four simulations.
    for task in 1..=4 {
        let variables = [
            ("SLURM_ARRAY_TASK_ID", task.to_string()),
            ("SLURM_ARRAY_TASK_MIN", "1".to_owned()),
            ("SLURM_ARRAY_TASK_MAX", "10".to_owned()),
            ("SLURM_ARRAY_TASK_STEP", "1".to_owned()),
            ("SLURM_ARRAY_TASK_COUNT", "10".to_owned()),
            ("SLURM_CPUS_PER_TASK", "8".to_owned()),
        ];
        run(
            &script,
            &variables
                .each_ref()
                .map(|(name, value)| (*name, value.as_str())),
        );
    }
    assert_eq!(place.done(&["sweep", "merge", "results"]).0, whole);
}
