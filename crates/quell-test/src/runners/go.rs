//! `go test`.

use quell_guard::{BUILT_IN, DecisionCode};

use super::RunnerTable;
use crate::check::{Checked, NEVER, NUMBER, OptionStyle, Options, PathRole, PathWord, Rules, refuse};

pub(super) const TABLE: RunnerTable = RunnerTable {
    name: "go test",
    options: Options {
        style: OptionStyle::Go,
        flags: "-v -race -short -failfast -json -cover -benchmem -msan -asan -x -n -a -c -trimpath -fullpath -buildvcs",
        values: "\
            -run -skip -bench -benchtime -cpu -list -timeout -vet -fuzz -fuzztime -fuzzminimizetime -shuffle -tags",
        choices: &[
            ("-count -parallel -p", NUMBER),
            ("-covermode", "set count atomic"),
            ("-mod", "mod readonly vendor"),
            ("-coverpkg -exec -toolexec -vettool -overlay -modfile -pgo -pkgdir -outputdir", NEVER),
            ("-ldflags -gcflags -gccgoflags -asmflags -buildmode -compiler -installsuffix", NEVER),
        ],
        paths: &[
            ("-o", PathRole::Output("test out bin exe")),
            (
                "-coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -trace",
                PathRole::Output("out cov prof pprof profile trace txt"),
            ),
        ],
        writes: &[],
        wide: "",
        plugins: "",
    },
    separator: "-args",
    program_options: None,
    verbs: "",
    parse_target: package,
};

/// A directory as go writes it: `.`, `./pkg`, `./pkg/...`, `/srv/app/pkg`.
fn package(word: &str, rules: &Rules<'_>) -> Checked<Vec<PathWord>> {
    let stem = word.strip_suffix("/...").unwrap_or(word);
    let found = rules.path(stem, PathRole::Target, true)?;
    if stem == "." || stem.starts_with("./") || stem.starts_with('/') {
        return Ok(vec![found]);
    }
    let reason = format!("go reads `{}` as an import path, which can be anywhere", found.path);
    refuse(DecisionCode::PathOutsideScope, BUILT_IN, reason, format!("write ./{}", found.path))
}
