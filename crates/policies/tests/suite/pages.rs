//! Every policy has its page, `docs/policies/NAME.md`, which is about it; and the worked example of
//! a policy shows the code that is there.

use std::path::{Path, PathBuf};
use tidegate_core::policy::Policy;
use tidegate_policies::policy::{PolicyInfo, PolicySpec, registry};

fn read(in_repository: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path: PathBuf = root.join(in_repository);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page(info: &PolicyInfo) -> String {
    read(&format!("docs/policies/{}.md", info.name))
}

#[test]
fn every_policy_has_a_page_that_names_its_parts() {
    for info in registry() {
        let page = page(info);
        assert!(
            page.starts_with(&format!("# {}\n", info.name)),
            "{}",
            info.name
        );
        let controller = info.controller.map(|part| part.name);
        let parts = controller
            .into_iter()
            .chain([info.regulator.name, info.dispatcher.name]);
        for part in parts {
            assert!(
                page.contains(&format!("`{part}`")),
                "{}: no word of {part}",
                info.name
            );
        }
    }
}

#[test]
fn every_parameter_is_on_the_page_of_a_policy_that_has_it() {
    for info in registry() {
        let parts = (info.regulator.params.iter()).chain(info.dispatcher.params);
        for param in parts.chain(info.controller.map_or(&[][..], |part| part.params)) {
            let has_it = |other: &&PolicyInfo| {
                let spec = PolicySpec::named(other.name).expect("registered");
                spec.params()
                    .iter()
                    .copied()
                    .any(|(known, _)| known.name == param.name)
            };
            let mut pages = registry().iter().filter(has_it).map(page);
            let named = pages.any(|page| page.contains(&format!("`{}`", param.name)));
            assert!(named, "{}: {} is on no page", info.name, param.name);
        }
    }
}

#[test]
fn the_worked_example_shows_the_code_as_it_is() {
    let text = read("docs/dev/adding-a-policy.md");
    let mut excerpts = 0;
    let mut parts = text.split("```");
    while let (Some(before), Some(block)) = (parts.next(), parts.next()) {
        let Some(code) = block.strip_prefix("rust\n") else {
            continue;
        };
        // The line above names the file.
        let file = before
            .trim_end()
            .lines()
            .last()
            .unwrap_or_default()
            .trim_matches('`');
        assert!(read(file).contains(code), "{file} does not contain\n{code}");
        excerpts += 1;
    }
    assert!(excerpts >= 8, "only {excerpts} excerpts");
}
