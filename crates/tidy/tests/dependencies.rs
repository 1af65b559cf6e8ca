//! Licences, sources and bans of dependencies, by the lists of `deny.toml`.
//!
//! cargo-deny checks these, too, and advisories; it takes minutes to build, and this a second.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

#[derive(Deserialize)]
struct Deny {
    licenses: Licences,
    sources: Sources,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
    exceptions: Vec<Exception>,
}

/// Licences that one crate alone may have.
#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

impl Licences {
    /// Returns true if a package of this name may have the licence.
    fn allow(&self, name: &str, licence: &str) -> bool {
        let exceptions = self.exceptions.iter().filter(|it| it.name == name);
        let allowed = exceptions.flat_map(|it| &it.allow).chain(&self.allow);
        is_allowed(licence, &allowed.cloned().collect())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// Registry or repository; `None` for members of the workspace.
    source: Option<String>,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn rules() -> Deny {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml is there");
    toml::from_str(&text).expect("deny.toml has the sections and lists")
}

/// Returns the packages that the workspace is built from on this machine's kind of Linux, with all
/// features.
fn packages() -> Vec<Package> {
    let cargo = env::var_os("CARGO").expect("cargo runs the tests");
    let platform = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let arguments = [
        "metadata",
        "--format-version=1",
        "--locked",
        "--all-features",
        "--filter-platform",
    ];
    let output = Command::new(cargo)
        .args(arguments)
        .arg(platform)
        .current_dir(root())
        .output()
        .expect("cargo starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata.packages
}

/// Returns true if a licence expression (SPDX, or with `/` for OR) can be met by allowed licences.
/// OR binds less than AND.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = any_of(&mut rest, allowed);
    assert!(rest.is_empty(), "{expression:?} is no licence expression");
    met
}

fn any_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = all_of(words, allowed);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        met |= all_of(words, allowed);
    }
    met
}

fn all_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let met = any_of(words, allowed);
            assert_eq!(words.first(), Some(&")"), "a parenthesis is not closed");
            *words = &words[1..];
            met
        }
        [licence, "WITH", exception, rest @ ..] => {
            *words = rest;
            allowed.contains(&format!("{licence} WITH {exception}"))
        }
        [licence, rest @ ..] => {
            *words = rest;
            allowed.contains(*licence)
        }
        [] => panic!("a licence expression that is cut off"),
    }
}

#[test]
fn dependencies_have_allowed_licences_and_sources_and_none_is_banned() {
    let rules = rules();
    let packages = packages();
    let foreign: Vec<&Package> = packages.iter().filter(|one| one.source.is_some()).collect();
    assert!(foreign.len() > 50, "cargo lists {} packages", foreign.len());
    let mut wrong = Vec::new();
    for package in foreign {
        let (name, version) = (&package.name, &package.version);
        let source = package.source.as_deref().unwrap_or_default();
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        if !rules.sources.allow_registry.iter().any(|is| is == registry) {
            wrong.push(format!("{name} {version} is from {source}"));
        }
        match &package.license {
            Some(licence) if rules.licenses.allow(name, licence) => {}
            licence => wrong.push(format!("{name} {version} has the licence {licence:?}")),
        }
        if rules.bans.deny.iter().any(|banned| banned.name == *name) {
            wrong.push(format!("{name} {version} is banned"));
        }
    }
    assert!(wrong.is_empty(), "deny.toml does not allow: {wrong:#?}");
}

#[test]
fn licence_expressions_are_read_as_cargo_deny_reads_them() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(str::to_owned);
    let allowed = BTreeSet::from(allowed);
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only/MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
        ("(MIT OR Unicode-3.0) AND GPL-3.0-only", false),
        ("MIT OR Unicode-3.0 AND GPL-3.0-only", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("MIT WITH LLVM-exception", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), met, "{expression}");
    }
}
