//! One row: contenders that do the same work, one after the other, round by round.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::halt;
use super::options::Options;

/// A figure in the unit of the row, or why there is none.
pub type Outcome = Result<f64, String>;
type Work<'a> = Box<dyn FnMut() -> Outcome + 'a>;

/// A contender that has taken this much in all has had its rounds: a row is to end some time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first round counts after all if it took this long: such a contender gets few.
const LONG: Duration = Duration::from_secs(10);
/// Failures in a row after which a contender is out; one is enough if it took long.
const FAILURES: usize = 3;

/// What quell is held to.
pub enum Bar {
    /// At most so many times the median of another contender.
    Times {
        /// Whose.
        of: &'static str,
        /// The bar.
        most: f64,
        /// What is aimed at.
        aim: Option<f64>,
    },
    /// Nothing but aimed at: so many times the median of another contender.
    Aim {
        /// Whose.
        of: &'static str,
        /// What is aimed at.
        most: f64,
    },
    /// At most so much.
    Most {
        /// The bar.
        most: f64,
        /// What is aimed at.
        aim: Option<f64>,
    },
}

/// A tool that does the work of a row.
pub struct Contender<'a> {
    name: String,
    /// What it doesn't do that quell does, or how it is used.
    word: &'static str,
    ours: bool,
    work: Result<Work<'a>, String>,
}

/// A row of the table.
pub struct Row<'a> {
    id: String,
    title: String,
    unit: &'static str,
    bars: Vec<Bar>,
    most_rounds: usize,
    contenders: Vec<Contender<'a>>,
}

impl<'a> Row<'a> {
    pub fn new(id: impl Into<String>, title: impl Into<String>, unit: &'static str) -> Self {
        let (id, title) = (id.into(), title.into());
        Self { id, title, unit, bars: Vec::new(), most_rounds: usize::MAX, contenders: Vec::new() }
    }

    /// Quell's figures are to be at most `most` times those of `of`.
    pub fn bar(mut self, of: &'static str, most: f64, aim: impl Into<Option<f64>>) -> Self {
        self.bars.push(Bar::Times { of, most, aim: aim.into() });
        self
    }

    /// It would be good if quell's figures were at most `most` times those of `of`.
    pub fn aim(mut self, of: &'static str, most: f64) -> Self {
        self.bars.push(Bar::Aim { of, most });
        self
    }

    /// Quell's figures are to be at most this.
    pub fn most(mut self, most: f64, aim: impl Into<Option<f64>>) -> Self {
        self.bars.push(Bar::Most { most, aim: aim.into() });
        self
    }

    /// No more rounds than this, as each takes long.
    pub fn rounds(mut self, most: usize) -> Self {
        self.most_rounds = most;
        self
    }

    /// A peer, with a word on what it does not do.
    pub fn peer(
        mut self,
        name: impl Into<String>,
        word: &'static str,
        work: impl FnMut() -> Outcome + 'a,
    ) -> Self {
        self.contenders.push(Contender { name: name.into(), word, ours: false, work: Ok(Box::new(work)) });
        self
    }

    /// A peer that may be missing.
    pub fn maybe<T, W: FnMut() -> Outcome + 'a>(
        mut self,
        name: impl Into<String>,
        word: &'static str,
        found: Result<T, String>,
        work: impl FnOnce(T) -> W,
    ) -> Self {
        let work = found.map(|found| Box::new(work(found)) as Work<'a>);
        self.contenders.push(Contender { name: name.into(), word, ours: false, work });
        self
    }

    /// Quell.
    pub fn quell(
        mut self,
        name: impl Into<String>,
        word: &'static str,
        work: impl FnMut() -> Outcome + 'a,
    ) -> Self {
        self.contenders.push(Contender { name: name.into(), word, ours: true, work: Ok(Box::new(work)) });
        self
    }

    /// Runs it. None: the run was interrupted.
    pub fn run(self, options: &Options) -> Option<Value> {
        let rounds = options.rounds.min(self.most_rounds);
        eprintln!("{}: {} ({rounds} rounds)", self.id, self.title);
        let mut running: Vec<Running<'a>> = self.contenders.into_iter().map(Running::new).collect();
        let count = running.len();
        // One round more: the first one fills caches and is thrown away.
        let mut order: Vec<usize> = (0..count).collect();
        let mut chance = 1;
        for round in 0..=rounds {
            // Otherwise a contender would always follow the same one, which may have left the processors idle.
            shuffle(&mut order, &mut chance);
            for &place in &order {
                if halt::asked() {
                    return None;
                }
                running[place].go(round > 0);
            }
        }
        let contenders: Vec<Value> = running.iter().map(Running::json).collect();
        for (running, json) in running.iter().zip(&contenders) {
            let figure = |name: &str| json[name].as_f64().unwrap_or(f64::NAN);
            match &running.out {
                None => eprintln!(
                    "  {:34} median {:10.3}  min {:10.3}  p95 {:10.3} {}",
                    running.name,
                    figure("median"),
                    figure("min"),
                    figure("p95"),
                    self.unit
                ),
                Some(why) => eprintln!("  {:34} missing: {why}", running.name),
            }
        }
        Some(json!({
            "id": self.id,
            "title": self.title,
            "unit": self.unit,
            "quick": options.quick,
            "bars": self.bars.iter().map(Bar::json).collect::<Vec<_>>(),
            "contenders": contenders,
        }))
    }
}

impl Bar {
    fn json(&self) -> Value {
        match self {
            Bar::Times { of, most, aim } => json!({"of": of, "most": most, "aim": aim}),
            Bar::Aim { of, most } => json!({"of": of, "most": most, "only_aim": true}),
            Bar::Most { most, aim } => json!({"most": most, "aim": aim}),
        }
    }
}

/// Another order, the same in every run: `chance` goes on from one to the next.
fn shuffle(order: &mut [usize], chance: &mut u64) {
    for last in (1..order.len()).rev() {
        *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (*chance >> 33) as usize % (last + 1));
    }
}

/// A contender with what it has shown so far.
struct Running<'a> {
    name: String,
    word: &'static str,
    ours: bool,
    work: Option<Work<'a>>,
    out: Option<String>,
    samples: Vec<f64>,
    failures: usize,
    spent: Duration,
}

impl<'a> Running<'a> {
    fn new(contender: Contender<'a>) -> Self {
        let (work, out) = match contender.work {
            Ok(work) => (Some(work), None),
            Err(why) => (None, Some(why)),
        };
        let Contender { name, word, ours, .. } = contender;
        Self { name, word, ours, work, out, samples: Vec::new(), failures: 0, spent: Duration::ZERO }
    }

    fn go(&mut self, counts: bool) {
        let Some(work) = &mut self.work else { return };
        if self.spent > PATIENCE && !self.samples.is_empty() {
            return;
        }
        let start = Instant::now();
        let outcome = work();
        let took = start.elapsed();
        self.spent += took;
        match outcome {
            Ok(figure) => {
                self.failures = 0;
                if counts || took > LONG {
                    self.samples.push(figure);
                }
            }
            Err(why) => {
                self.failures += 1;
                eprintln!("  {}: {why}", self.name);
                if self.failures >= FAILURES || took > LONG {
                    self.work = None;
                    self.out = Some(why);
                }
            }
        }
    }

    fn json(&self) -> Value {
        let mut json = json!({"name": self.name, "word": self.word, "ours": self.ours});
        match &self.out {
            Some(why) => json["missing"] = json!(why),
            None => {
                let mut sorted = self.samples.clone();
                sorted.sort_unstable_by(f64::total_cmp);
                json["rounds"] = json!(sorted.len());
                json["median"] = json!(rank(&sorted, 0.5));
                json["min"] = json!(sorted.first());
                json["p95"] = json!(rank(&sorted, 0.95));
                json["samples"] = json!(self.samples);
            }
        }
        json
    }
}

/// The figure that this part of them is not above.
fn rank(sorted: &[f64], part: f64) -> Option<f64> {
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied()
}
