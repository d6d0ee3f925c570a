//! Executors whose mistakes are known: whether the promise holds, how often, and whether it costs less than everything.

use super::*;
use crate::encode::tests::Words;
use crate::evaluation_tests::architecture;
use crate::random::Random;
use crate::{Dataset, Example, Options, Task};
use sparing_model::*;

/// Exact margins are the inputs' own; a cheap margin is the exact one plus noise, so the decision flips where noise wins.
#[derive(Clone, Copy)]
struct World {
    /// Half the width of the noise.
    noise: f64,
    /// Share of inputs that flip whatever their margin.
    wild: f64,
}

impl World {
    /// An exact and a cheap signed margin; the sign is the decision. Exact margins are uniform on -1 to 1.
    fn draw(&self, random: &mut Random) -> (f64, f64) {
        let mut uniform = || random.next() as f64 / u64::MAX as f64;
        let exact = 2.0 * uniform() - 1.0;
        let noise = self.noise * (2.0 * uniform() - 1.0);
        (exact, if uniform() < self.wild { -exact } else { exact + noise })
    }

    fn trial(&self, n: usize, random: &mut Random) -> Trial {
        let mut trial = Trial { complete: true, ..Trial::default() };
        for _ in 0..n {
            let (exact, cheap) = self.draw(random);
            trial.needed.push(if exact * cheap < 0.0 { cheap.abs() } else { f64::NEG_INFINITY });
            trial.margins.push(cheap.abs());
        }
        trial
    }

    /// The true probability that the cascade decides otherwise: flips by noise whose cheap margin exceeds `t` (for exact
    /// margin m, noise in -w to -m-t, integrated over m), and wild ones.
    fn risk(&self, escalate: Escalate) -> f64 {
        let t = match escalate {
            Escalate::Nothing => 0.0,
            Escalate::UpTo(t) => f64::from(t),
            Escalate::Everything => return 0.0,
        };
        let left = (self.noise - t).max(0.0);
        (1.0 - self.wild) * left * left / (4.0 * self.noise) + self.wild * (1.0 - t.min(1.0))
    }
}

fn about() -> Fingerprint {
    Fingerprint { model: "m".into(), configuration: "cheap".into(), details: String::new() }
}

fn certify(trial: &Trial, certify: f64, confidence: f64) -> Certificate {
    Certificate::new(trial, Decision::Label, Target { certify, confidence }, about()).unwrap()
}

/// The promise fails for at most one trial in ten (the confidence is 90%); 4000 trials, so that a true rate of 10% shows
/// more than 11.5% with a probability below 0.1%. And it is not kept by escalating everything: it fails for one trial in
/// thirty at least, and escalates little more than a world that is known would ask for (11% and 7%).
#[test]
fn the_promise_holds_as_often_as_stated() {
    let worlds = [(World { noise: 0.2, wild: 0.0 }, 0.15), (World { noise: 0.2, wild: 0.002 }, 0.25)];
    for (seed, (world, most)) in worlds.into_iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let (mut broken, mut escalated) = (0, 0.0);
        let trials = 4000;
        for _ in 0..trials {
            let certificate = certify(&world.trial(500, &mut random), 0.99, 0.9);
            assert!(certificate.bound <= 0.01 + 1e-12);
            broken += usize::from(world.risk(certificate.escalate) > 0.01);
            escalated += certificate.escalated / trials as f64;
        }
        let share = broken as f64 / trials as f64;
        assert!(share <= 0.115, "broken in {share} of the trials");
        assert!(share >= 1.0 / 30.0, "too careful: broken in only {share} of the trials");
        assert!(escalated < most, "{escalated} escalated");
    }
}

/// The formula of the risk used above, against a simulation.
#[test]
fn the_risk_of_the_synthetic_world_is_right() {
    let (world, mut random) = (World { noise: 0.2, wild: 0.01 }, Random::new(3));
    for escalate in [Escalate::Nothing, Escalate::UpTo(0.05), Escalate::UpTo(0.15)] {
        let draws = 400_000;
        let fails = |(exact, cheap): (f64, f64)| exact * cheap < 0.0 && !escalate.wants(cheap.abs());
        let found = (0..draws).filter(|_| fails(world.draw(&mut random))).count() as f64 / draws as f64;
        // Five standard deviations.
        assert!(
            (found - world.risk(escalate)).abs() < 5.0 * (world.risk(escalate) / draws as f64).sqrt(),
            "{escalate:?}"
        );
    }
}

#[test]
fn too_few_inputs_escalate_everything() {
    let perfect = |n: usize| Trial { needed: vec![f64::NEG_INFINITY; n], margins: vec![1.0; n], ..Trial::default() };
    assert_eq!(certify(&perfect(298), 0.99, 0.95).escalate, Escalate::Everything);
    assert_eq!(certify(&perfect(299), 0.99, 0.95).escalate, Escalate::Nothing);
    assert_eq!(Target { certify: 0.99, confidence: 0.95 }.fewest_inputs(), 299);
    for (share, confidence) in [(1.0, 0.95), (0.0, 0.95), (f64::NAN, 0.95), (0.99, 1.0), (0.99, -1.0)] {
        let target = Target { certify: share, confidence };
        assert!(Certificate::new(&perfect(9), Decision::Label, target, about()).is_err());
    }
}

#[test]
fn the_threshold_is_a_need_by_rank() {
    // 500 inputs allow one miss at 99% and 95% confidence.
    let mut trial = Trial { needed: vec![f64::NEG_INFINITY; 500], margins: vec![2.0; 500], ..Trial::default() };
    assert_eq!(crate::binomial::allowed(500, 0.01, 0.95), Some(1));
    for (i, need) in [0.3f32, 0.9, 0.5].into_iter().enumerate() {
        (trial.needed[i], trial.margins[i]) = (f64::from(need), f64::from(need));
    }
    let certificate = certify(&trial, 0.99, 0.95);
    assert_eq!(certificate.escalate, Escalate::UpTo(0.5));
    assert_eq!((certificate.differ, certificate.missed, certificate.escalated), (3, 1, 2.0 / 500.0));
    trial.needed[1..3].fill(f64::NEG_INFINITY);
    assert_eq!(certify(&trial, 0.99, 0.95).escalate, Escalate::Nothing);
}

/// An executor made of a function from the tokens of a sequence to rows of numbers.
struct Fake<F>(usize, F);

impl<F: Fn(&[u32]) -> Vec<f32> + Send + Sync> Executor for Fake<F> {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        let one = |(i, s): (usize, &Sequence)| match &batch.wanted {
            Wanted::Rows(rows) => {
                let all = self.1(&s.ids);
                rows[i].iter().flat_map(|row| all[row * self.0..(row + 1) * self.0].to_vec()).collect()
            }
            _ => self.1(&s.ids),
        };
        Ok(Outputs { width: self.0, sequences: batch.sequences.iter().enumerate().map(one).collect() })
    }
}

fn texts(n: usize, seed: u64) -> Dataset {
    let mut random = Random::new(seed);
    let text = |random: &mut Random| (0..4).map(|_| format!("w{}", random.below(500))).collect::<Vec<_>>().join(" ");
    let examples = (0..n).map(|_| Example { text: text(&mut random), ..Example::default() }).collect();
    let (source, label_column) = ("f".into(), String::new());
    Dataset { task: Task::Own, source, place: "line", label_column, columns: vec![], examples, notes: vec![] }
}

/// Numbers between -1 and 1 that look random, from the tokens and a salt.
fn number(ids: &[u32], salt: u64) -> f32 {
    let seed = ids.iter().fold(salt, |h, id| h.wrapping_mul(31).wrapping_add(u64::from(*id)));
    (Random::new(seed).next() as f64 / u64::MAX as f64 * 2.0 - 1.0) as f32
}

#[test]
fn from_trial_to_check() {
    let exact = Fake(2, |ids: &[u32]| vec![0.0, number(ids, 1)]);
    let cheap = Fake(2, |ids: &[u32]| vec![0.0, number(ids, 1) + 0.1 * number(ids, 2)]);
    let (architecture, options) = (architecture(HeadKind::Classify, &["no", "yes"]), Options::default());
    let decision = Decision::of(HeadKind::Classify, None).unwrap();
    let pair = Pair { cheap: &cheap, exact: &exact, decision };
    let mut on = |_: &crate::Progress| true;
    let trial = try_out(&pair, &Words, &architecture, &texts(2000, 5), &options, &mut on).unwrap();
    let certificate = certify(&trial, 0.99, 0.95);
    let Escalate::UpTo(threshold) = certificate.escalate else { panic!("{certificate:?}") };
    assert!((0.0..0.1).contains(&threshold), "{threshold}");
    let cascade = Cascade::new(pair, certificate.escalate);
    let found = check(&cascade, &pair, &Words, &architecture, &texts(2000, 6), &options, &mut on).unwrap();
    assert_eq!((found.inputs, found.tally.inputs, found.complete, found.contradicts(0.99)), (2000, 2000, true, false));
    assert!(found.same > found.same_cheap + 20 && found.agreement.high > 0.99, "{found:?}");
    assert!(found.tally.escalated > 0 && found.tally.escalated < 200, "{found:?}");
    // A promise that does not hold is noticed.
    let nothing = Cascade::new(pair, Escalate::Nothing);
    let found = check(&nothing, &pair, &Words, &architecture, &texts(2000, 6), &options, &mut on).unwrap();
    assert!(found.contradicts(0.999), "{found:?}");
}

#[test]
fn marked_inputs_and_no_others_are_exact() {
    let exact = Fake(2, |ids: &[u32]| vec![0.0, ids[0] as f32]);
    let cheap = Fake(2, |ids: &[u32]| vec![0.5, if ids[0] == 9 { f32::NAN } else { ids[0] as f32 }]);
    let cascade = Cascade::new(Pair { cheap: &cheap, exact: &exact, decision: Decision::Label }, Escalate::UpTo(1.5));
    let sequence = |id: u32| Sequence { ids: vec![id], types: vec![] };
    let batch = Batch { sequences: [1, 5, 2, 9].map(sequence).to_vec(), wanted: Wanted::Head };
    let (outputs, marks) = cascade.run_marked(&batch).unwrap();
    assert_eq!(marks, [true, false, true, true]);
    assert_eq!(outputs.sequences, [[0.0, 1.0], [0.5, 5.0], [0.0, 2.0], [0.0, 9.0]]);
    assert_eq!(cascade.tally(), Tally { inputs: 4, escalated: 3 });
    let everything =
        Cascade::new(Pair { cheap: &cheap, exact: &exact, decision: Decision::Label }, Escalate::Everything);
    assert_eq!(everything.run(&batch).unwrap(), exact.run(&batch).unwrap());
}

#[test]
fn chosen_rows_are_decided_with_the_whole_text() {
    let exact = Fake(2, |ids: &[u32]| ids.iter().flat_map(|id| [0.0, *id as f32]).collect());
    let cheap = Fake(2, |ids: &[u32]| ids.iter().flat_map(|id| [0.25, *id as f32]).collect());
    let cascade = Cascade::new(Pair { cheap: &cheap, exact: &exact, decision: Decision::Tags }, Escalate::UpTo(1.0));
    let sequences = vec![Sequence { ids: vec![7, 1, 8], types: vec![] }, Sequence { ids: vec![7, 8], types: vec![] }];
    let wanted = Wanted::Rows(vec![vec![0, 2], vec![1]]);
    // The first text's second token is close although nobody asks for its row.
    let (outputs, marks) = cascade.run_marked(&Batch { sequences, wanted }).unwrap();
    assert_eq!(marks, [true, false]);
    assert_eq!(outputs.sequences, [vec![0.0, 7.0, 0.0, 8.0], vec![0.25, 8.0]]);
}

#[test]
fn a_certificate_is_for_one_thing() {
    let trial = Trial { needed: vec![f64::NEG_INFINITY; 400], margins: vec![1.0; 400], ..Trial::default() };
    let certificate = certify(&trial, 0.99, 0.95);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.json");
    std::fs::write(&path, serde_json::to_string(&certificate).unwrap()).unwrap();
    let read = Certificate::read(&path).unwrap();
    assert_eq!(
        (read.escalate, &read.about, read.target),
        (certificate.escalate, &certificate.about, certificate.target)
    );
    read.check_for(&about(), Decision::Label).unwrap();
    let says = |about: Fingerprint, decision| read.check_for(&about, decision).unwrap_err().to_string();
    assert!(says(Fingerprint { model: "n".into(), ..about() }, Decision::Label).contains("another model"));
    assert!(says(Fingerprint { configuration: "int8".into(), ..about() }, Decision::Label).contains("not for int8"));
    assert!(says(Fingerprint { details: "x".into(), ..about() }, Decision::Label).contains("another calibration"));
    assert!(says(about(), Decision::Tags).contains("other decisions"));
    for text in ["", "{}", "[1]", r#"{"certify": 2}"#] {
        std::fs::write(&path, text).unwrap();
        assert!(Certificate::read(&path).unwrap_err().to_string().contains("not a certificate"), "{text}");
    }
    assert!(Certificate::read(&folder.path().join("none")).unwrap_err().to_string().contains("cannot be read"));
}
