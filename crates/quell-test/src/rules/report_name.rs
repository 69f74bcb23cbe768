//! Which file names reports may have. What is called otherwise may be run or read by a program as code or settings, so that no
//! option of a test run writes there; and what is called so is not run as a script.

use super::options::{REPORT_DIRS, is_among};
use super::{BUILT_IN, Decision, matches};

/// How names of reports end.
const ENDS: &str = "\
    cov html info json jsonl lcov log md out pprof prof profile tap trace txt xml";

/// How names of evidence end.
pub const EVIDENCE_ENDS: &str = "json log txt";

/// Names that end like a report, and that programs read as settings.
const SETTINGS: &str = "\
    *.config.json *.config.xml *.eslintrc.json *.workspace.json *-lock.json *rc.json .* AndroidManifest.xml \
    CMakeLists.txt CMakePresets.json CMakeUserPresets.json angular.json app.json biome.json bower.json build.xml \
    bunfig.json cdk.json composer.json constraints*.txt deno.json deno.jsonc dependency_links.txt entry_points.txt \
    import_map.json ivy.xml jest-preset.json jsconfig*.json lerna.json manifest.json meson_options.txt \
    namespace_packages.txt nightwatch.json npm-shrinkwrap.json nx.json package.json phpunit*.xml pom.xml project.json \
    pyrightconfig.json requirements*.txt settings*.xml top_level.txt tsconfig*.json turbo.json vcpkg.json \
    workspace.json workspaces.json";

/// Whether a file of this name is nothing but a report: its name ends in one of `ends`, and no program reads it as settings.
pub fn is_report_name(name: &str, ends: &str) -> bool {
    // Some file systems don't tell large letters from small ones.
    let lower = name.to_lowercase();
    let is_settings = SETTINGS.split_whitespace().any(|pattern| matches(&pattern.to_lowercase(), &lower));
    let has_end = |(stem, end): (&str, &str)| !stem.is_empty() && is_among(ends, end);
    !is_settings && name.rsplit_once('.').is_some_and(has_end)
}

/// Whether evidence may have this name.
pub fn decide_evidence_name(path: &str) -> Result<(), Box<Decision>> {
    let name = super::command::last(path);
    if is_report_name(name, EVIDENCE_ENDS) {
        return Ok(());
    }
    let reason = format!("`{}` is not a name for evidence", super::path::shown(path));
    let hint = "use a name that ends in .json, .log or .txt and that no program reads as settings, such as evidence.json";
    Err(Box::new(Decision::refuse("PATH_PROTECTED", BUILT_IN, reason, hint)))
}

/// Whether a file of this name is a report, of whatever kind: such a file is not run as a script.
pub fn is_any_report(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, end)| is_among(ENDS, &end.to_lowercase()))
}

/// Whether a directory of this name holds reports.
pub fn is_report_dir(name: &str) -> bool {
    is_among(REPORT_DIRS, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_reports_name_and_not_one_of_a_script_or_of_settings() {
        for name in
            ["evidence.json", "a.b.txt", "pytest.log", "reports.json", "my-package.json", "config.json"]
        {
            assert!(is_report_name(name, EVIDENCE_ENDS), "{name}");
        }
        for name in [
            "run.sh",
            "run",
            "json",
            ".json",
            ".x.json",
            "x.py",
            "x.JSON",
            "x.json.sh",
            "x.toml",
            "x.ini",
            "x.cfg",
            "package.json",
            "Package.json",
            "package-lock.json",
            "tsconfig.json",
            "tsconfig.test.json",
            "jest.config.json",
            ".mocharc.json",
            ".babelrc.json",
            "requirements.txt",
            "requirements-dev.txt",
            "CMakeLists.txt",
            "entry_points.txt",
            "x.xml",
            "",
        ] {
            assert!(!is_report_name(name, EVIDENCE_ENDS), "{name}");
        }
    }
}
