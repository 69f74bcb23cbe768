//! `quell start`: a job that outlives the command.

use quell_tests::{
    evidence::{cause, says_gone},
    host::Setting,
    jobs::Background,
    lab::Lab,
};

fn over(job: &Background<'_>) -> serde_json::Value {
    assert!(job.is_over(), "{}", job.state());
    job.receipt().expect("a receipt")
}

#[test]
fn a_job_outlives_the_command_and_is_gone_after_stop() {
    for setting in Setting::all() {
        let lab = Lab::with(setting);
        let job = lab.start().args(["--contain", setting.contain.word()]).actor("setsid", None).begin();
        assert_eq!(job.state(), "running", "under {setting}");
        assert!(!lab.oracle.survivors().is_empty(), "under {setting}");
        let done = job.stop(&["--grace", "200ms"]);
        assert_eq!(done.code(), Some(0), "under {setting}: {}", done.stderr);
        let receipt = over(&job);
        says_gone(&receipt).unwrap_or_else(|why| panic!("under {setting}: {why}"));
        assert_eq!(cause(&receipt), "user");
        assert!(job.wait_quiet(quell_tests::run::PATIENCE).is_empty(), "under {setting}");
        assert_eq!(lab.leftovers(), Vec::<String>::new(), "under {setting}");
    }
}
