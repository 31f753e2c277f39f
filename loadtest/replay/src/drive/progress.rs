//! Progress of the replay: a bar on a terminal, lines elsewhere.

use super::scene::Scene;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::{IsTerminal, stderr},
    sync::Arc,
    time::Duration,
};
use vocab::{Millis, human};

const PERIOD: Duration = Duration::from_millis(250);
/// Number of progress lines without a terminal.
const LINES: usize = 10;

/// Shows the progress until the replay has ended or the task is aborted.
pub async fn show(scene: Arc<Scene>) {
    let all = scene.workload.pods.len();
    let bar = stderr().is_terminal().then(|| bar(all as u64));
    let mut shown = 0;
    loop {
        let submitted = scene.submitted();
        let part = submitted * LINES / all.max(1);
        match &bar {
            Some(bar) => {
                bar.set_message(status(&scene));
                bar.set_position(submitted as u64);
            }
            None if part > shown => chassis::out!("  {submitted:>6} of {all}  {}", status(&scene)),
            None => {}
        }
        shown = shown.max(part);
        if submitted >= all {
            if let Some(bar) = &bar {
                bar.finish();
            }
            return;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn bar(all: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("  {bar:32} {pos:>5}/{len} pods  {msg}");
    let style = style.expect("the template is good").progress_chars("━╸─");
    ProgressBar::new(all).with_style(style)
}

fn status(scene: &Scene) -> String {
    let running = scene.witness().placed_now();
    let latency = scene.desk().latency();
    let moment = human::moment(Millis(scene.clock.now_ms()));
    let date = moment.split('T').next().unwrap_or_default();
    format!(
        "{date}  {running} running  p50 {:.0} ms  p99 {:.0} ms",
        latency.p50_ms, latency.p99_ms
    )
}
