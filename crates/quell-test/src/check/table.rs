//! Tables: which command lines are allowed, and with which code others are refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use quell_core::{Background, JobRequest};
use tempfile::TempDir;

use super::command::{check_commands, read_command};
use super::scope::Resolved;
use super::*;

/// A directory in which only these files exist.
fn cwd() -> &'static Path {
    static DIR: OnceLock<(PathBuf, TempDir)> = OnceLock::new();
    let made = DIR.get_or_init(|| {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().canonicalize().expect("a path");
        for name in ["tests/pkg", "tests_evil", "src", "pkg"] {
            fs::create_dir_all(path.join(name)).expect("mkdir");
        }
        for name in ["pytest.ini", "tests/x.toml"] {
            fs::write(path.join(name), "").expect("a file");
        }
        fs::write(path.join("tests/a.py"), "class TestX(Case):\n    pass\n").expect("a file");
        (path, dir)
    });
    &made.0
}

/// `ok`, or the code of the refusal, with these scopes. `/srv` in a line stands for the working directory.
fn judge(line: &str, scope: &[&str]) -> String {
    judge_by(line, scope, &[], false)
}

/// The same, with what the policy allows, and whether it lists the program.
fn judge_by(line: &str, scope: &[&str], allow: &[&str], listed: bool) -> String {
    let line = line.replace("/srv", &cwd().display().to_string());
    let words: Vec<OsString> = split_words(&line).into_iter().map(OsString::from).collect();
    let scope = scope.iter().map(PathBuf::from).collect();
    let plan = TestPlan { scope, ..TestPlan::new(JobRequest::new(words, Background::default())) };
    let policy = TestPolicy {
        allow: allow.iter().map(ToString::to_string).collect(),
        commands_lift_scope: listed,
        ..TestPolicy::default()
    };
    let checked = check(&policy, &plan, cwd(), Path::new("/none"));
    checked.map_or_else(|refusal| refusal.code, |_| "ok".into())
}

/// Judges each line, and shows those that are not judged as expected.
fn hold<'l>(rows: impl IntoIterator<Item = (&'l str, &'l str)>, judge: impl Fn(&str) -> String) {
    let judged = rows.into_iter().map(|(line, expected)| (line, expected, judge(line)));
    let wrong = judged.filter(|(_, expected, judged)| judged != expected);
    let wrong: Vec<String> =
        wrong.map(|(line, expected, judged)| format!("{line}: {judged}, not {expected}")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_words_of_each_runner_that_are_paths_are_held_against_the_scope() {
    let rows = [
        ("pytest tests", "ok"),
        ("pytest -q tests/a.py::test_x", "ok"),
        ("pytest 'tests/a.py::test_x[../..]'", "ok"),
        ("pytest tests/a.py::T::test_x tests/pkg", "ok"),
        ("python3 -m pytest tests", "ok"),
        ("python3.11 -X dev -I -m pytest tests/a.py", "ok"),
        ("uv run pytest tests", "ok"),
        ("pytest", "TARGET_REQUIRED"),
        ("pytest -q -k 'a or b'", "TARGET_REQUIRED"),
        ("pytest -k tests", "TARGET_REQUIRED"),
        ("pytest src", "PATH_OUTSIDE_SCOPE"),
        ("pytest tests src", "PATH_OUTSIDE_SCOPE"),
        ("pytest tests_evil", "PATH_OUTSIDE_SCOPE"),
        ("pytest tests_evil/a.py::test_x", "PATH_OUTSIDE_SCOPE"),
        ("pytest tests/none.py", "PATH_MISSING"),
        ("pytest tests ''", "PATH_EMPTY"),
        ("pytest '::test_x'", "PATH_EMPTY"),
        ("pytest /etc", "PATH_ABSOLUTE"),
        ("pytest tests/../src", "PATH_TRAVERSAL"),
        ("pytest .", "PATH_OUTSIDE_SCOPE"),
        ("pytest ./tests", "ok"),
        ("pytest ././tests/a.py::test_x", "ok"),
        ("pytest /srv/tests/a.py", "ok"),
        ("pytest /srv", "PATH_OUTSIDE_SCOPE"),
        ("pytest /srv/src", "PATH_OUTSIDE_SCOPE"),
        ("pytest /srv/tests/../src", "PATH_TRAVERSAL"),
        ("pytest /srvx/tests", "PATH_ABSOLUTE"),
        ("pytest --junitxml=./out.xml tests", "ok"),
        ("pytest --junitxml=/srv/out.xml tests", "ok"),
        ("go test /srv/tests/...", "ok"),
        ("go test /srv/src", "PATH_OUTSIDE_SCOPE"),
        ("go test ./tests/./x", "PATH_TRAVERSAL"),
        ("npx jest ./tests/a.py", "ok"),
        ("pytest -- tests", "ok"),
        ("pytest -- -x", "PATH_OPTION"),
        ("pytest tests @more", "PATH_OPTION"),
        ("pytest --pyargs os", "PATH_OUTSIDE_SCOPE"),
        ("pytest -o addopts=--rootdir=/ tests", "PATH_ABSOLUTE"),
        ("pytest -o cache_dir=/tmp/x tests", "PATH_ABSOLUTE"),
        ("pytest -ocache_dir=../x tests", "PATH_TRAVERSAL"),
        ("pytest -o console_output_style=classic tests", "ok"),
        ("pytest --rootdir=/ tests", "PATH_ABSOLUTE"),
        ("pytest --rootdir / tests", "PATH_ABSOLUTE"),
        ("pytest --rootdir=. tests", "ok"),
        ("pytest --rootdir=$HOME tests", "PATH_VARIABLE"),
        ("pytest --confcutdir=.. tests", "PATH_TRAVERSAL"),
        ("pytest -c /etc/x.ini tests", "PATH_ABSOLUTE"),
        ("pytest -c/etc/x.ini tests", "PATH_ABSOLUTE"),
        ("pytest -xvc/etc/x.ini tests", "PATH_ABSOLUTE"),
        ("pytest -xc ../x.ini tests", "PATH_TRAVERSAL"),
        ("pytest -c pytest.ini tests", "ok"),
        ("pytest -c=tests/x.toml tests", "ok"),
        ("pytest -c src/x.toml tests", "PATH_OPTION"),
        ("pytest --basetemp=/home tests", "PATH_ABSOLUTE"),
        ("pytest --basetemp=src tests", "PATH_PROTECTED"),
        ("pytest --basetemp=tests tests", "PATH_PROTECTED"),
        ("pytest --basetemp=tests/tmp tests", "ok"),
        ("pytest --junitxml=/etc/x tests", "PATH_ABSOLUTE"),
        ("pytest --junitxml=~/x tests", "PATH_HOME"),
        ("pytest --junitxml out.xml tests", "ok"),
        ("pytest --ignore=../x --deselect tests/a.py::x tests", "ok"),
        ("pytest --unknown value tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest --unknown=value tests", "ok"),
        ("pytest -p no:cacheprovider -x --maxfail 2 tests", "ok"),
        ("go test ./tests/...", "ok"),
        ("go test ./tests/pkg -run TestX -count=1", "ok"),
        ("go test ./...", "PATH_OUTSIDE_SCOPE"),
        ("go test ./src/...", "PATH_OUTSIDE_SCOPE"),
        ("go test", "TARGET_REQUIRED"),
        ("go test fmt", "PATH_OUTSIDE_SCOPE"),
        ("go test tests/...", "PATH_OUTSIDE_SCOPE"),
        ("go test ../x/...", "PATH_TRAVERSAL"),
        ("go test ./tests/../x", "PATH_TRAVERSAL"),
        ("go test /etc/...", "PATH_ABSOLUTE"),
        ("go test -C /etc ./tests", "PATH_OPTION"),
        ("go test --coverprofile=/etc/x ./tests", "PATH_ABSOLUTE"),
        ("go test ./tests -args /etc/passwd", "ok"),
        ("cargo test", "TARGET_REQUIRED"),
        ("cargo test --manifest-path tests/x.toml some::name", "ok"),
        ("cargo +nightly test --manifest-path=/x/Cargo.toml", "PATH_ABSOLUTE"),
        ("cargo nextest run --manifest-path ../x", "PATH_TRAVERSAL"),
        ("npx jest tests/a.py", "ok"),
        ("jest --rootDir=/ tests/a.py", "PATH_ABSOLUTE"),
        ("vitest run tests", "ok"),
        ("vitest run src", "PATH_OUTSIDE_SCOPE"),
        ("vitest run 'tests|src'", "PATH_OUTSIDE_SCOPE"),
        ("make check", "TARGET_REQUIRED"),
        ("make src", "PATH_OUTSIDE_SCOPE"),
        ("sh tests/a.py", "ok"),
        ("sh tests/a.py /etc/passwd", "PATH_ABSOLUTE"),
        ("sh tests\\\\..\\\\src", "PATH_TRAVERSAL"),
    ];
    hold(rows, |line| judge_by(line, &["tests"], &["*"], true));
}

/// Each was once a way for a target to pass as something else.
#[test]
fn no_word_that_a_runner_takes_for_a_target_is_passed_over() {
    let rows = [
        // An option that takes no value, or takes one only with `=`.
        ("pytest --trace-config /out/a.py tests", "PATH_ABSOLUTE"),
        ("pytest --trace-config tests", "ok"),
        ("pytest --cache-show src tests", "PATH_OPTION"),
        ("pytest --debug src tests", "PATH_OPTION"),
        ("pytest tests --debug", "ok"),
        ("pytest --debug=/out/victim tests", "PATH_ABSOLUTE"),
        ("pytest --debug=../victim tests", "PATH_TRAVERSAL"),
        ("pytest --debug=log.txt tests", "ok"),
        ("pytest --keyword /out tests", "PATH_ABSOLUTE"),
        ("pytest --log-auto-indent on tests", "PATH_OUTSIDE_SCOPE"),
        // Without the plugin the value is a target: a path has to be written with `=`.
        ("pytest tests -n 4 --timeout 5", "ok"),
        ("pytest -n 4 tests --timeout 5 -q", "ok"),
        ("pytest -n=4 --timeout=5 tests", "ok"),
        ("pytest -n 4 --timeout 5 tests", "ok"),
        ("pytest --timeout /out tests", "PATH_ABSOLUTE"),
        ("pytest --timeout src tests", "PATH_OPTION"),
        ("pytest --cov-report=html:/out tests", "PATH_ABSOLUTE"),
        ("pytest --cov-report=term tests", "ok"),
        // An option that is not known.
        ("pytest --alluredir=/out tests", "PATH_ABSOLUTE"),
        ("pytest --alluredir=../out tests", "PATH_TRAVERSAL"),
        ("pytest --alluredir=./out/x tests", "ok"),
        ("pytest --base-url=http://localhost:1/x tests", "ok"),
        ("pytest --x=file:///etc tests", "PATH_ABSOLUTE"),
        // What argparse takes for no option.
        ("pytest '- x/../../out/a.py' tests", "PATH_OPTION"),
        ("pytest '-Zo x/../../out/a.py' tests", "PATH_OPTION"),
        ("pytest '--x=y/../../out/a.py::a b' tests", "PATH_OPTION"),
        ("pytest -1 tests", "PATH_OPTION"),
        ("pytest '-ka b' '-xk a b' '--junit-prefix=a b' tests", "ok"),
        // Cut at the first bracket, or not.
        ("pytest 'tests/a.py[x'", "PATH_MISSING"),
        ("pytest 'src[x'", "PATH_OUTSIDE_SCOPE"),
        ("pytest 'tests/a.py::test[a::b]'", "ok"),
        ("pytest -o testpaths=/out tests", "PATH_ABSOLUTE"),
        ("pytest -o log_file=../x tests", "PATH_TRAVERSAL"),
        ("go test -buildvcs /out ./tests", "PATH_ABSOLUTE"),
        ("go test -test.coverprofile=/out ./tests", "PATH_ABSOLUTE"),
        ("go test -pgo=/out ./tests", "PATH_ABSOLUTE"),
        ("go test -C tests ./pkg", "PATH_OPTION"),
        ("go test -unknown=/out ./tests", "PATH_ABSOLUTE"),
        ("jest --logHeapUsage /out tests", "PATH_ABSOLUTE"),
        ("jest --bail /out tests", "PATH_ABSOLUTE"),
        ("jest --bail tests", "ok"),
        ("jest --bail=2 tests", "ok"),
        ("jest --projects=../x --ci tests", "PATH_TRAVERSAL"),
        ("jest tests --projects ../x", "PATH_OPTION"),
        ("jest --root-dir=src tests", "PATH_OUTSIDE_SCOPE"),
        ("jest -c../x.json tests", "PATH_OPTION"),
        ("jest -c=../x.json tests", "PATH_TRAVERSAL"),
        // Parsers that give an option no value if the next word begins with a dash.
        ("jest tests -t --rootDir=/", "PATH_OPTION"),
        ("jest tests -tc=tests/x.toml", "PATH_OPTION"),
        ("vitest run tests -t= src", "PATH_OPTION"),
        ("vitest run tests --testNamePattern= src", "PATH_OPTION"),
        ("jest --globalSetup=/out/x.js tests", "PATH_ABSOLUTE"),
        // All words behind it are values: nothing is named, and jest would choose for itself.
        ("jest --reporters default tests", "PATH_OPTION"),
        ("jest --reporters=default tests", "PATH_OPTION"),
        ("jest tests", "ok"),
        ("vitest run -w /out tests", "PATH_OPTION"),
        ("vitest run --logHeapUsage /out tests", "PATH_ABSOLUTE"),
        ("vitest run --bail 2 tests", "ok"),
        ("vitest run tests --changed src", "PATH_OPTION"),
        ("vitest run -r=/out tests", "PATH_ABSOLUTE"),
        ("vitest run --coverage.reportsDirectory=/out tests", "PATH_ABSOLUTE"),
        ("vitest run -- tests", "TARGET_REQUIRED"),
        ("cargo nextest run --archive-file=/x", "PATH_ABSOLUTE"),
        ("cargo nextest run --manifest-path tests/x.toml --config-file=../n.toml", "PATH_TRAVERSAL"),
        ("cargo nextest run --manifest-path tests/x.toml --tool-config-file=a:/n", "PATH_ABSOLUTE"),
        ("cargo test --manifest-path tests/x.toml --workspace", "PATH_OPTION"),
        ("cargo test --manifest-path tests/x.toml -pother", "PATH_OPTION"),
        ("cargo -C src test --manifest-path tests/x.toml", "PATH_OPTION"),
        ("cargo -qCsrc test --manifest-path tests/x.toml", "PATH_OPTION"),
        ("cargo --color always test --manifest-path tests/x.toml", "ok"),
        ("sh tests/a.py --dir=/etc", "PATH_ABSOLUTE"),
        ("sh tests/a.py -C../x", "PATH_TRAVERSAL"),
        ("sh tests/a.py --level=3 -x", "ok"),
    ];
    hold(rows, |line| judge_by(line, &["tests"], &["*"], true));
}

#[test]
fn a_wrapper_hides_no_target() {
    let wrong: Vec<String> = [
        (&[][..], "env pytest-3 /out", "PATH_ABSOLUTE"),
        (&[], "env -i A=/x pytest tests", "ok"),
        (&[], "timeout 5 pytest-3 /out", "PATH_ABSOLUTE"),
        (&[], "env timeout -k 1 5 nice -n 5 pytest ../x", "PATH_TRAVERSAL"),
        (&[], "uv run --with x pytest /etc", "PATH_ABSOLUTE"),
        (&[], "uv run --with=pytest pytest tests", "ok"),
        (&[], "uv run -m pytest /etc", "PATH_ABSOLUTE"),
        (&[], "coverage run -m pytest /etc", "PATH_ABSOLUTE"),
        (&[], "poetry run python -m pytest /etc", "PATH_ABSOLUTE"),
        (&[], "pipenv run python3 -Om pytest /etc", "PATH_ABSOLUTE"),
        (&[], "timeout 5 go test /etc", "PATH_ABSOLUTE"),
        (&[], "nice cargo test --manifest-path=/x/Cargo.toml", "PATH_ABSOLUTE"),
        (&[], "pnpm exec vitest run ../x", "PATH_TRAVERSAL"),
        (&[], "npx jest@29 /etc", "PATH_ABSOLUTE"),
        (&[], "pnpm --filter x exec vitest run tests", "PATH_OPTION"),
        (&[], "yarn workspace x jest tests", "PATH_OPTION"),
        (&[], "cargo -C .. test", "PATH_OPTION"),
        (&[], "env -C /etc pytest tests", "PATH_OPTION"),
        (&[], "env --chdir=src pytest tests", "PATH_OPTION"),
        (&[], "uv run --directory src pytest tests", "PATH_OPTION"),
        (&[], "env PYTEST_ADDOPTS=/out pytest tests", "PATH_OPTION"),
        (&["tests"], "env A=/x pytest tests", "ok"),
        (&["tests"], "uv run sh src/x.sh pytest tests", "COMMAND_NOT_ALLOWED"),
        (&["tests"], "uv run --env-file=/x pytest tests", "OPTION_NOT_ALLOWED"),
        (&["tests"], "env pytest", "TARGET_REQUIRED"),
    ]
    .iter()
    .filter_map(|(dirs, line, expected)| {
        let judged = judge(line, dirs);
        (judged != *expected).then(|| format!("{line}: {judged}, not {expected}"))
    })
    .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Command lines as people and agents write them.
const ORDINARY: &[&str] = &[
    "pytest -q -x -k name --tb=short --maxfail=1 tests/a.py::test_b -v -s --lf --durations=10 -n auto --cov=pkg",
    "pytest -xvs tests --tb=line --no-header -rA -p no:cacheprovider -W error -W ignore::DeprecationWarning",
    "pytest tests -m 'not slow' --timeout=60 --cov-report=term-missing --cov-report xml:coverage.xml --import-mode=importlib",
    "pytest -p no:cacheprovider -p no:randomly -pno:warnings --maxfail -1 --import-mode importlib tests --lfnf all",
    "pytest tests -o log_cli=true -o addopts= --color=yes --strict-markers --junitxml=out.xml",
    "python3 -X dev -W error -m pytest tests",
    "python -Bm pytest -vv tests",
    "uv run --frozen --group dev pytest tests -q",
    "poetry run pytest tests",
    "uvx pytest@8.3 tests",
    "env CI=1 npx jest tests",
    "env CI=1 DATABASE_URL=x timeout -k 5 60 nice -n 5 pytest tests",
    "env -i -u PYTHONPATH pytest tests",
    "coverage run --branch --source=pkg -m pytest tests",
    "python3 -m unittest -v tests/a.py",
    "python3 -m unittest tests.a.TestX.test_y",
    "python3 -m unittest discover -s tests -p 'test_*.py' -t . -v",
    "coverage run -m unittest tests",
    "go test ./tests/... -run X -v -count=1 -race -timeout 30s -coverprofile=c.out -json",
    "go test -tags=integration -short -mod=readonly ./tests/pkg",
    "npx jest tests -t name --runInBand --ci --coverage --silent --testTimeout=5000 --maxWorkers=2",
    "npx --no-install jest@29 tests --watchAll=false --forceExit --detectOpenHandles",
    "npx vitest run tests -t name --reporter=verbose --coverage --pool=forks --no-file-parallelism",
    "pnpm exec vitest run tests",
    "yarn jest tests",
    "npm exec -- jest tests",
    "cargo test --manifest-path tests/x.toml --lib name --no-fail-fast -j 2 -- --nocapture --test-threads=1",
    "cargo +nightly test --manifest-path tests/x.toml --release --features a,b --test it",
    "cargo +nightly-2026-01-01 test --manifest-path tests/x.toml -- --nocapture --ignored",
    "pytest tests --html=report.html --report-log=log.json",
    "go test ./tests -args -mine=/etc",
    "cargo +1.85.0 --locked test --manifest-path tests/x.toml --target x86_64-unknown-linux-musl",
    "cargo nextest run --manifest-path tests/x.toml -E 'test(a)' --retries 2 --no-capture -P ci",
    "sh tests/a.py",
    "python3 tests/a.py --level=3",
    "./tests/a.py",
    "python -m coverage run --branch -m pytest tests",
    "python3 -Xdev -mcoverage run -m unittest tests",
    "env CGO_ENABLED=0 go test ./tests",
    "pytest -c pytest.ini tests",
    "pytest --rootdir=. --confcutdir=. tests",
    "pytest --cov=pkg --cov-context=test --cov-report=term:skip-covered --cov-report=html:htmlcov tests",
    "pytest --hypothesis-profile=ci --benchmark-json=b.json --log-file=out/run.log tests",
    "pytest -qo addopts= tests",
    "pytest -oaddopts= --override-ini=addopts= tests",
    "jest --rootDir=tests",
    "jest --testPathPattern=tests --ci",
    "jest --coverageDirectory=coverage --outputFile=out.json tests -w 2 -t=name",
    "vitest run --root=tests",
    "vitest run --dir tests",
    "python3 -u tests/a.py",
    "sh -x tests/a.py",
    "bash -ex tests/a.py",
    "setsid -w pytest tests",
    "time -p pytest tests",
];

#[test]
fn ordinary_command_lines_pass_with_a_scope() {
    let wrong: Vec<String> = ORDINARY
        .iter()
        .map(|line| format!("{line}: {}", judge(line, &["tests"])))
        .filter(|judged| !judged.ends_with(": ok"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let whole = [
        "cargo test -p crate --lib name -- --nocapture",
        "cargo nextest run --workspace",
        "pytest .",
        "pytest",
    ];
    for line in whole {
        assert!(judge(line, &["."]).starts_with("ok"), "{line}: {}", judge(line, &["."]));
    }
}

/// Each runs or loads something else than the tests that are named.
const FOREIGN: &[(&str, &str)] = &[
    ("pytest -p evil tests", "OPTION_NOT_ALLOWED"),
    ("pytest -p=no:x tests", "OPTION_NOT_ALLOWED"),
    ("pytest -qp=no:x tests", "OPTION_NOT_ALLOWED"),
    ("pytest -xpevil tests", "OPTION_NOT_ALLOWED"),
    ("pytest -c tests/x.toml tests", "OPTION_NOT_ALLOWED"),
    ("pytest --rootdir=src tests", "OPTION_NOT_ALLOWED"),
    ("pytest --confcutdir=tests tests", "OPTION_NOT_ALLOWED"),
    ("pytest -o pythonpath=src tests", "OPTION_NOT_ALLOWED"),
    ("pytest -o filterwarnings=error::evil.W tests", "OPTION_NOT_ALLOWED"),
    ("pytest --override-ini=testpaths=src tests", "OPTION_NOT_ALLOWED"),
    ("pytest -W error::evil.Warn tests", "OPTION_NOT_ALLOWED"),
    ("pytest --pdbcls=evil:Pdb tests", "OPTION_NOT_ALLOWED"),
    ("pytest --pastebin=all tests", "OPTION_NOT_ALLOWED"),
    ("pytest --import-mode=evil tests", "OPTION_NOT_ALLOWED"),
    // An alias, which `.cargo/config.toml` can redefine.
    ("cargo t --manifest-path tests/x.toml", "COMMAND_NOT_ALLOWED"),
    ("cargo +stable -q t --manifest-path tests/x.toml", "COMMAND_NOT_ALLOWED"),
    ("cargo nextest r --manifest-path tests/x.toml", "COMMAND_NOT_ALLOWED"),
    // Without these parts of pytest the words behind their options are targets.
    ("pytest -p no:logging --log-level src tests/a.py", "OPTION_NOT_ALLOWED"),
    ("pytest -pno:logging tests", "OPTION_NOT_ALLOWED"),
    ("pytest -p no:doctest --doctest-glob src tests", "OPTION_NOT_ALLOWED"),
    ("pytest -p no:terminal --tb src tests", "OPTION_NOT_ALLOWED"),
    ("pytest -p no:terminal -vk src tests", "OPTION_NOT_ALLOWED"),
    ("pytest -p no:capture -sk src tests", "OPTION_NOT_ALLOWED"),
    ("pytest -xp no:junitxml --junit-prefix src tests", "OPTION_NOT_ALLOWED"),
    ("pytest -p no:junitxml --junitxml src/out.xml tests", "OPTION_NOT_ALLOWED"),
    ("pytest -p no:cacheprovider --lfnf src tests", "OPTION_NOT_ALLOWED"),
    ("pytest -p no:cacheprovider --lfnf src::x tests", "OPTION_NOT_ALLOWED"),
    ("pytest --timeout 'src[x' tests", "OPTION_NOT_ALLOWED"),
    // pytest looks for `-p` among the values, too, and for `@FILE`.
    ("python3 -m pytest --log-level -pevil.evilmod tests", "PATH_OPTION"),
    ("pytest -k -pevil tests", "PATH_OPTION"),
    ("pytest --lfnf -pevil tests", "PATH_OPTION"),
    ("pytest -k @src/words tests", "PATH_OPTION"),
    ("pytest --timeout @src/words tests", "PATH_OPTION"),
    ("python3 -m unittest -k -c tests", "PATH_OPTION"),
    ("pytest --tx=popen//python=/x -n 1 tests", "OPTION_NOT_ALLOWED"),
    ("pytest --ds=evil tests", "OPTION_NOT_ALLOWED"),
    ("pytest --rootd=/ tests", "OPTION_NOT_ALLOWED"),
    ("python3 -W error::evil.Warn -m pytest tests", "COMMAND_NOT_ALLOWED"),
    ("python3 -X presite=evil -m pytest tests", "COMMAND_NOT_ALLOWED"),
    ("python3 -Xpycache_prefix=/x -mpytest tests", "COMMAND_NOT_ALLOWED"),
    ("python3 -im pytest tests", "COMMAND_NOT_ALLOWED"),
    ("python3 -m unittest", "TARGET_REQUIRED"),
    ("python3 -m unittest src.x", "PATH_OUTSIDE_SCOPE"),
    ("python3 -m unittest evil.module", "PATH_OUTSIDE_SCOPE"),
    ("python3 -m unittest discover -s src", "PATH_OUTSIDE_SCOPE"),
    ("python3 -m unittest discover tests x src", "PATH_OUTSIDE_SCOPE"),
    ("python3 -Im unittest tests.a", "COMMAND_NOT_ALLOWED"),
    ("env PATH=/x pytest tests", "OPTION_NOT_ALLOWED"),
    ("env HOME=/x pytest tests", "OPTION_NOT_ALLOWED"),
    ("env CARGO_HOME=/x cargo test --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("python3 -c x tests", "COMMAND_NOT_ALLOWED"),
    ("python3 -m http.server tests", "COMMAND_NOT_ALLOWED"),
    ("python3 src/x.py tests", "PATH_OUTSIDE_SCOPE"),
    ("cargo --config x.toml test --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("cargo test --config build.rustc-wrapper=x --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("cargo test --config=x --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("cargo test -Zbuild-std --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("cargo test --target x.json --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("cargo +/x test --manifest-path tests/x.toml", "PATH_OPTION"),
    ("cargo +evil test --manifest-path tests/x.toml", "PATH_OPTION"),
    ("cargo run --manifest-path tests/x.toml", "COMMAND_NOT_ALLOWED"),
    ("cargo evil --manifest-path tests/x.toml", "COMMAND_NOT_ALLOWED"),
    ("cargo nextest archive --manifest-path tests/x.toml", "COMMAND_NOT_ALLOWED"),
    ("cargo nextest run --config-file x --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("cargo nextest run --debugger gdb --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("go test -exec /x ./tests", "OPTION_NOT_ALLOWED"),
    ("go test --exec=x ./tests", "OPTION_NOT_ALLOWED"),
    ("go test -toolexec=x ./tests", "OPTION_NOT_ALLOWED"),
    ("go test -ldflags=-extld=x ./tests", "OPTION_NOT_ALLOWED"),
    ("go test -gcflags x ./tests", "OPTION_NOT_ALLOWED"),
    ("go test -vettool=x ./tests", "OPTION_NOT_ALLOWED"),
    ("go test -overlay tests/x.toml ./tests", "OPTION_NOT_ALLOWED"),
    ("go test -modfile=tests/x.toml ./tests", "OPTION_NOT_ALLOWED"),
    ("go run ./tests", "COMMAND_NOT_ALLOWED"),
    ("jest --setupFiles=/x tests", "OPTION_NOT_ALLOWED"),
    ("jest tests --setup-files-after-env x", "OPTION_NOT_ALLOWED"),
    ("jest --modulePaths=/x tests", "OPTION_NOT_ALLOWED"),
    ("jest --transform={} tests", "OPTION_NOT_ALLOWED"),
    ("jest --config={} tests", "OPTION_NOT_ALLOWED"),
    ("jest -c tests/x.toml tests", "OPTION_NOT_ALLOWED"),
    ("jest --env=./evil tests", "OPTION_NOT_ALLOWED"),
    ("jest tests --reporters evil", "OPTION_NOT_ALLOWED"),
    ("jest tests --coverageReporters=/x", "OPTION_NOT_ALLOWED"),
    ("jest --findRelatedTests tests", "OPTION_NOT_ALLOWED"),
    ("jest --preset=x tests", "OPTION_NOT_ALLOWED"),
    ("vitest run --environment=/x tests", "OPTION_NOT_ALLOWED"),
    ("vitest run --environment ./x tests", "OPTION_NOT_ALLOWED"),
    ("vitest run --reporter=/x tests", "OPTION_NOT_ALLOWED"),
    ("vitest run --config tests/x.toml tests", "OPTION_NOT_ALLOWED"),
    ("vitest run --coverage.customProviderModule=x tests", "OPTION_NOT_ALLOWED"),
    ("vitest run --poolOptions.forks.execArgv=--import=/x tests", "OPTION_NOT_ALLOWED"),
    ("vitest run --globalSetup=/x tests", "OPTION_NOT_ALLOWED"),
    ("env -S 'x' pytest tests", "OPTION_NOT_ALLOWED"),
    ("env -S'x y' pytest tests", "OPTION_NOT_ALLOWED"),
    ("env --split-string=x pytest tests", "OPTION_NOT_ALLOWED"),
    ("env PYTHONPATH=/x pytest tests", "OPTION_NOT_ALLOWED"),
    ("env A=1 NODE_OPTIONS=--import=/x npx jest tests", "OPTION_NOT_ALLOWED"),
    ("env RUSTC_WRAPPER=x cargo test --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("env GOFLAGS=-exec=x go test ./tests", "OPTION_NOT_ALLOWED"),
    ("env sh -c x pytest tests", "COMMAND_NOT_ALLOWED"),
    ("timeout 5 sh pytest tests", "COMMAND_NOT_ALLOWED"),
    ("uv run --with evil pytest tests", "OPTION_NOT_ALLOWED"),
    ("uvx --from evil pytest tests", "OPTION_NOT_ALLOWED"),
    ("npx -p evil jest tests", "OPTION_NOT_ALLOWED"),
    ("npx --node-options=--import=/x jest tests", "OPTION_NOT_ALLOWED"),
    ("npx -c 'evil' jest tests", "OPTION_NOT_ALLOWED"),
    ("npx jest@file:/x tests", "COMMAND_NOT_ALLOWED"),
    ("npx jest@file:/x/jest tests", "PATH_OPTION"),
    ("npx jest@npm:evil tests", "PATH_OPTION"),
    ("npx evil/jest tests", "PATH_OPTION"),
    ("npx pytest tests", "PATH_OPTION"),
    ("npx nice jest tests", "PATH_OPTION"),
    ("npx env -u x cargo test --manifest-path tests/x.toml", "PATH_OPTION"),
    ("uvx jest tests", "PATH_OPTION"),
    ("uvx python -m pytest tests", "PATH_OPTION"),
    ("npm test -- tests", "COMMAND_NOT_ALLOWED"),
    ("npm exec jest tests -w x", "PATH_OPTION"),
    ("npm exec -w x -- jest tests", "OPTION_NOT_ALLOWED"),
    ("coverage run --rcfile=x -m pytest tests", "OPTION_NOT_ALLOWED"),
    ("coverage run src/x.py -m pytest tests", "COMMAND_NOT_ALLOWED"),
    ("make check tests", "COMMAND_NOT_ALLOWED"),
    ("sh -c x tests", "COMMAND_NOT_ALLOWED"),
    ("sh -xc x tests", "COMMAND_NOT_ALLOWED"),
    ("bash --rcfile x tests", "COMMAND_NOT_ALLOWED"),
    ("python3 -X presite=x tests/a.py", "COMMAND_NOT_ALLOWED"),
    ("sh -x src/x.sh tests", "PATH_OUTSIDE_SCOPE"),
    ("uv run --python ./x pytest tests", "OPTION_NOT_ALLOWED"),
    ("uv run --python=/x pytest tests", "OPTION_NOT_ALLOWED"),
    ("uv run -p/x pytest tests", "OPTION_NOT_ALLOWED"),
    ("python -X presite=x -m coverage run -m pytest tests", "COMMAND_NOT_ALLOWED"),
    ("python -m coverage run --rcfile=x -m pytest tests", "OPTION_NOT_ALLOWED"),
    // An option in the place of a value, or in one word with another option.
    ("jest tests -tc=evil/j.json", "PATH_OPTION"),
    ("jest tests -wc=evil/j.json", "PATH_OPTION"),
    ("jest tests -w2", "PATH_OPTION"),
    ("jest tests -t --config=evil/j.json", "PATH_OPTION"),
    ("jest tests --shard --config=evil/j.json", "PATH_OPTION"),
    ("jest tests --testNamePattern --globalSetup=./evil/e.js", "PATH_OPTION"),
    ("jest tests --collectCoverageFrom --config=evil/j.json", "OPTION_NOT_ALLOWED"),
    ("jest tests --selectProjects --config=evil/j.json", "OPTION_NOT_ALLOWED"),
    ("jest tests -bic=evil/j.json", "PATH_OPTION"),
    ("vitest run tests -uc=evil/v.ts", "PATH_OPTION"),
    ("vitest run tests -u-c=evil/v.ts", "PATH_OPTION"),
    ("vitest run tests -t --config=evil/v.ts", "PATH_OPTION"),
    ("vitest run tests --c=evil/v.ts", "OPTION_NOT_ALLOWED"),
    ("jest --config=evil/jest.config.js tests", "OPTION_NOT_ALLOWED"),
    ("jest --rootDir=tests --roots=.", "OPTION_NOT_ALLOWED"),
    ("jest --testPathPattern=src", "PATH_OUTSIDE_SCOPE"),
    // A file that is written could be code, or what quell itself goes by.
    ("pytest tests --log-file=conftest.py", "PATH_PROTECTED"),
    ("pytest tests --log-file=.git/hooks/pre-commit", "PATH_PROTECTED"),
    ("pytest tests --debug=tests/run.sh", "PATH_PROTECTED"),
    ("pytest tests --resultlog=tests/run.sh", "OPTION_NOT_ALLOWED"),
    ("pytest tests --html=tests/run.sh", "PATH_PROTECTED"),
    ("pytest tests --benchmark-json=package.json", "PATH_PROTECTED"),
    ("jest tests --outputFile=package.json", "PATH_PROTECTED"),
    ("jest tests --outputFile=tsconfig.json", "PATH_PROTECTED"),
    ("pytest tests --log-file=requirements.txt", "PATH_PROTECTED"),
    ("sh tests/evidence.json", "COMMAND_NOT_ALLOWED"),
    ("python3 -u tests/run.log", "COMMAND_NOT_ALLOWED"),
    ("cargo test --manifest-path tests/x.toml -- --logfile=/out/x.log", "OPTION_NOT_ALLOWED"),
    ("cargo test --manifest-path tests/x.toml -- --logfile src/x.rs", "OPTION_NOT_ALLOWED"),
    ("go test ./tests -args -test.coverprofile=/out/x", "OPTION_NOT_ALLOWED"),
    ("go test ./tests -args --test.trace=src/x.go", "OPTION_NOT_ALLOWED"),
    ("cargo +stable-mine test --manifest-path tests/x.toml", "PATH_OPTION"),
    ("cargo +1.85-mine test --manifest-path tests/x.toml", "PATH_OPTION"),
    ("cargo +nightly-2026-01-01-mine test --manifest-path tests/x.toml", "PATH_OPTION"),
    ("cargo +stable- test --manifest-path tests/x.toml", "PATH_OPTION"),
    ("cargo +stable test --target-dir=src --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("cargo test --config patch.crates-io.x.path='/x' --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("pytest tests --log-file=.txt", "PATH_PROTECTED"),
    ("pytest tests --log-file=a.log --log-file-format=x", "OPTION_NOT_ALLOWED"),
    ("pytest tests -o log_file=conftest.py", "OPTION_NOT_ALLOWED"),
    ("pytest tests -o log_format=x", "OPTION_NOT_ALLOWED"),
    ("pytest tests -o cache_dir=src", "OPTION_NOT_ALLOWED"),
    ("pytest tests --junitxml=quell.toml", "PATH_PROTECTED"),
    ("pytest tests --debug=quell.toml", "PATH_PROTECTED"),
    ("pytest tests --cov-report=xml:quell.toml", "OPTION_NOT_ALLOWED"),
    ("pytest tests --cov-report=html:src", "OPTION_NOT_ALLOWED"),
    ("jest tests --outputFile=quell.toml", "PATH_PROTECTED"),
    ("jest tests --coverageDirectory=src", "PATH_PROTECTED"),
    ("vitest run tests --coverage.reportsDirectory=src", "PATH_PROTECTED"),
    ("go test ./tests -c -o quell.toml", "PATH_PROTECTED"),
    ("go test ./tests -coverprofile=quell.toml", "PATH_PROTECTED"),
    ("go test -coverpkg=./src ./tests", "OPTION_NOT_ALLOWED"),
    ("go test -coverpkg=./tests,./... ./tests", "OPTION_NOT_ALLOWED"),
    ("go test -coverpkg=./tests", "OPTION_NOT_ALLOWED"),
    ("pytest --import-mode=append tests", "OPTION_NOT_ALLOWED"),
    ("pytest --cov-config src tests", "OPTION_NOT_ALLOWED"),
    ("pytest --cov-config=x.ini tests", "OPTION_NOT_ALLOWED"),
    ("pytest --benchmark-json src tests", "PATH_OPTION"),
    ("pytest --cov=evil.x tests", "OPTION_NOT_ALLOWED"),
    ("python3 -m unittest tests/a.b/c.py", "PATH_OPTION"),
    ("cargo test --target-dir src --manifest-path tests/x.toml", "OPTION_NOT_ALLOWED"),
    ("env GCONV_PATH=x pytest tests", "OPTION_NOT_ALLOWED"),
    ("./src/x.sh tests", "PATH_OUTSIDE_SCOPE"),
];

#[test]
fn what_runs_or_loads_something_else_is_refused_with_a_scope_and_free_without_one() {
    let wrong: Vec<String> = FOREIGN
        .iter()
        .map(|(line, expected)| (line, expected, judge(line, &["tests"])))
        .filter(|(_, expected, judged)| judged != *expected)
        .map(|(line, expected, judged)| format!("{line}: {judged}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (line, expected) in FOREIGN.iter().filter(|(_, code)| code.ends_with("NOT_ALLOWED")) {
        // A scope that leaves nothing out is one all the same.
        assert_eq!(judge(line, &["."]), *expected, "{line}");
        let free = judge(line, &[]);
        assert!(!free.contains("NOT_ALLOWED"), "{line}: {free}");
    }
}

#[test]
fn half_a_command_line_is_no_reason_to_fall_over() {
    let lines = ORDINARY.iter().chain(FOREIGN.iter().map(|(line, _)| line));
    for line in lines {
        let words = split_words(line);
        for length in 0..=words.len() {
            for scope in [&["tests"][..], &[]] {
                let quoted: Vec<String> = words[..length].iter().map(|word| format!("'{word}'")).collect();
                judge(&quoted.join(" "), scope);
            }
        }
    }
}

#[test]
fn a_policy_can_allow_what_is_refused_with_a_scope() {
    let scope = &["tests"][..];
    for (allow, line, expected) in [
        ("-p", "pytest -p xdist tests", "ok"),
        ("-o pythonpath=*", "pytest -o pythonpath=src tests", "ok"),
        ("-p no:logging", "pytest -p no:logging tests", "ok"),
        ("-p no:logging", "pytest -p no:terminal tests", "OPTION_NOT_ALLOWED"),
        ("-o pythonpath=*", "pytest -o filterwarnings=x tests", "OPTION_NOT_ALLOWED"),
        ("--alluredir", "pytest --alluredir=out tests", "ok"),
        ("--alluredir", "pytest --alluredir=/out tests", "PATH_ABSOLUTE"),
        ("--rootdir", "pytest --rootdir=src tests", "ok"),
        ("--timeout", "pytest --timeout src tests", "PATH_OPTION"),
        ("--timeout", "pytest --timeout src[x tests", "PATH_OPTION"),
        ("--basetemp", "pytest --basetemp=src tests", "PATH_PROTECTED"),
        ("--junitxml", "pytest --junitxml=out tests", "ok"),
        ("--junitxml", "pytest --junitxml=quell.toml tests", "PATH_PROTECTED"),
        ("--reporters", "jest --reporters=x tests", "PATH_OPTION"),
        ("--config", "jest --config=tests/x.toml tests", "ok"),
        ("PYTHONPATH", "env PYTHONPATH=src pytest tests", "ok"),
        ("-C", "cargo -C src test --manifest-path tests/x.toml", "PATH_OPTION"),
        ("*", "cargo run --manifest-path tests/x.toml", "COMMAND_NOT_ALLOWED"),
    ] {
        assert_eq!(judge_by(line, scope, &[allow], false), expected, "{line}");
    }
    assert_eq!(judge_by("make tests", scope, &[], true), "ok");
    assert_eq!(judge_by("cargo run --manifest-path tests/x.toml", scope, &[], true), "COMMAND_NOT_ALLOWED");
}

#[test]
fn words_are_parted_as_shlex_does_it() {
    for (text, expected) in [
        ("a b\tc\rd\ne", &["a", "b", "c", "d", "e"][..]),
        ("a\u{a0}b\u{b}c\u{c}d\u{2003}e", &["a\u{a0}b\u{b}c\u{c}d\u{2003}e"]),
        (r#""a\b\"c\\d""#, &[r#"a\b"c\d"#]),
        (r"a\ b\\c", &[r"a b\c"]),
        (r"'a\b' ''", &[r"a\b", ""]),
        ("--junitprefix=a\u{a0}-k /out", &["--junitprefix=a\u{a0}-k", "/out"]),
    ] {
        assert_eq!(split_words(text), expected, "{text:?}");
    }
}

#[test]
fn who_is_refused_for_want_of_a_target_is_told_what_would_be_one() {
    for (line, hint) in [
        ("cargo test", "--manifest-path"),
        ("cargo nextest run", "--manifest-path"),
        ("pytest", "files or directories"),
    ] {
        let decided = check_presence(&scope(&["tests"]), read_command(&split_words(line)).runner, &[], false);
        assert!(decided.expect_err(line).hint.contains(hint), "{line}");
    }
}

fn scope(dirs: &[&str]) -> Scope {
    let cwd = PathBuf::from("/srv");
    let dirs = dirs.iter().map(|dir| (cwd.join(dir), cwd.join(dir))).collect();
    Scope { cwd, dirs, rule: "--scope".into() }
}

#[test]
fn without_a_scope_all_below_the_working_directory_is_free() {
    for (line, expected) in [
        ("pytest", "ok"),
        ("pytest src tests", "ok"),
        ("pytest ../x", "PATH_TRAVERSAL"),
        ("pytest none", "PATH_MISSING"),
        ("pytest -p xdist --cov-config x.ini -o cache_dir=out/x tests", "ok"),
        ("pytest --x=/etc/a=b", "PATH_ABSOLUTE"),
        ("pytest --x=html:/out", "PATH_ABSOLUTE"),
        ("go test -ldflags='-X a/b.V=1' -coverpkg ./... -exec x ./pkg", "ok"),
        ("cargo test --target-dir out --config x", "ok"),
        ("go test ./...", "ok"),
        ("cargo test name", "ok"),
        ("vitest run some-pattern", "ok"),
        ("make /etc/passwd", "ok"),
        ("python -m unittest anything", "ok"),
        ("pytest --basetemp=.", "PATH_PROTECTED"),
    ] {
        assert_eq!(judge(line, &[]), expected, "{line}");
    }
    assert_eq!(judge("pytest", &["."]), "ok", "a scope of all leaves nothing out");
}

#[test]
fn what_leads_out_through_a_link_is_refused() {
    let scope = scope(&["tests"]);
    let word = PathWord { path: "tests/link".into(), place: Place::Target, exists: true };
    let written = PathBuf::from("/srv/tests/link");
    for (real, code) in [
        ("/etc", "PATH_SYMLINK_ESCAPE"),
        ("/srv/src", "PATH_SYMLINK_ESCAPE"),
        ("/srv/tests_evil/x", "PATH_SYMLINK_ESCAPE"),
        ("/srv", "PATH_SYMLINK_ESCAPE"),
        ("/srv/tests/other", ""),
    ] {
        let found = Resolved { written: written.clone(), real: real.into(), exists: true };
        let decided = check_place(&scope, &word, &found);
        assert_eq!(decided.err().map(|decision| decision.code).unwrap_or_default(), code, "{real}");
    }
}

#[test]
fn a_program_is_allowed_by_its_last_name() {
    let policy = |commands: &[&str]| TestPolicy {
        commands: commands.iter().map(ToString::to_string).collect(),
        ..TestPolicy::default()
    };
    for (commands, line, allowed) in [
        (&["pytest"][..], "pytest tests", true),
        (&["pytest"], ".venv/bin/pytest tests", true),
        (&["pytest"], "pytest-3 tests", true),
        (&["pytest"], "python3 -m pytest tests", true),
        (&["python"], "python3.11 -m pytest tests", true),
        (&["python3"], "python3 -m pytest tests", true),
        (&["pytest"], "python3 -m http.server", false),
        (&["pytest"], "python3 evil.py -m pytest", false),
        (&["pytest"], "python3 -c x -m pytest", false),
        (&["pytest"], "python3 -Ic '-1;import os' -m pytest tests", false),
        (&["pytest"], "python3 -- -m pytest tests", false),
        (&["pytest"], "python3 - -m pytest tests", false),
        (&["pytest"], "python3 -Xdev -m pytest tests", true),
        (&["pytest"], "python3 -X dev -m pytest tests", true),
        (&["pytest"], "python3 -X -c -m pytest tests", false),
        (&["pytest"], "python3 -X pycache_prefix=evil -m pytest tests", false),
        (&["pytest"], "python3 -W ignore::m.X -m pytest tests", false),
        (&["pytest"], "python3 -i -m pytest tests", false),
        (&["python"], "python3 -i -m pytest tests", true),
        (&["pytest"], "python3 -W error -OIm pytest tests", true),
        (&["pytest"], "python3 -mpytest tests", true),
        (&["pytest"], "python3 -mhttp.server -m pytest", false),
        (&["pytest"], "python3 -Z -m pytest tests", false),
        (&["pytest"], "python3 --check-hash-based-pycs -m pytest tests", false),
        (&["pytest"], "env pytest", false),
        (&["pytest"], "uv run pytest", false),
        (&["pytest"], "pytest_evil tests", false),
        (&["pytest"], "sh -c pytest", false),
        (&["cargo"], "cargo test", true),
        (&["cargo"], "cargo-evil test", false),
        (&["go", "cargo"], "/usr/bin/go test", true),
        (&["py*"], "pypy x", true),
        (&["/usr/bin/*"], "pytest tests", false),
        (&[], "anything at all", true),
    ] {
        let command = read_command(&split_words(line));
        assert_eq!(check_commands(&policy(commands), &command).is_ok(), allowed, "{commands:?} {line}");
    }
}

#[test]
fn runners_are_known_by_the_way_they_are_called() {
    for (line, runner) in [
        ("pytest", Runner::Pytest),
        ("python -m pytest", Runner::Pytest),
        ("python -m unittest", Runner::Unittest),
        ("python -m http.server", Runner::Other),
        ("cargo test", Runner::Cargo),
        ("cargo nextest run", Runner::Nextest),
        ("cargo build", Runner::Other),
        ("go test ./...", Runner::Go),
        ("go vet", Runner::Other),
        ("npx vitest", Runner::Vitest),
        ("node_modules/.bin/jest", Runner::Jest),
        ("", Runner::Other),
    ] {
        assert_eq!(read_command(&split_words(line)).runner, runner, "{line}");
    }
}

#[test]
fn approval_is_a_flag_or_a_word_that_means_yes() {
    let policy = TestPolicy { approval: true, approval_variable: "V".into(), ..TestPolicy::default() };
    for (flag, variable, approved) in [
        (true, None, true),
        (false, None, false),
        (false, Some("true"), true),
        (false, Some("TRUE"), true),
        (false, Some("Yes"), true),
        (false, Some("1"), true),
        (false, Some("0"), false),
        (false, Some(""), false),
        (false, Some("on"), false),
        (false, Some("truest"), false),
        (true, Some("no"), true),
    ] {
        let decided = check_approval(&policy, flag, variable.unwrap_or_default());
        assert_eq!(decided.is_ok(), approved, "{flag} {variable:?}");
        if let Err(decision) = decided {
            assert_eq!(decision.code, "APPROVAL_REQUIRED");
        }
    }
    assert!(check_approval(&TestPolicy::default(), false, "").is_ok());
}
