//! What was asked for, and what nothing would come of.

use super::{EndArg, OptimizeArgs, tutor};
use crate::failure::Failure;
use sparing_model::Model;
use sparing_optimize::{Economy, Settings, Strategy, Thresholds, bottom_first};

impl OptimizeArgs {
    /// Refuses options that nothing would come of.
    pub fn check_idle(&self) -> Result<(), Failure> {
        let (strategy, tutor) = (self.strategy(), &self.tutor);
        let has_end = !matches!(strategy, Strategy::Cost | Strategy::Random | Strategy::TopLayers);
        for (is_idle, why) in [
            (
                self.from.is_some() && !has_end,
                "--from: this strategy has an order of its own; it is for paper, taylor, flat and adaptive",
            ),
            (
                self.thresholds.is_some() && matches!(strategy, Strategy::Cost | Strategy::TopLayers),
                "--thresholds: this strategy judges by --max-loss alone; they are for paper, taylor, random, flat and adaptive",
            ),
            (
                tutor.analysis_rows.is_some() && tutor.analysis == tutor::AnalysisArg::Evaluate,
                "--analysis-rows: these are for --analysis finetune, which trains trials; evaluation has --search-rows",
            ),
        ] {
            if is_idle {
                return Err(Failure::Usage(why.into()));
            }
        }
        Ok(())
    }

    /// Refuses economies that nothing would come of.
    pub fn check_menu(&self, model: &Model) -> Result<(), Failure> {
        let running: Vec<&str> = self.economies.iter().filter(|e| e.is_running()).map(|e| e.name()).collect();
        if let Some(why) = model.architecture.no_shares().filter(|_| !running.is_empty()) {
            return Err(Failure::Usage(format!("--economies {}: {why}; leave it out", running.join(","))));
        }
        let (focus, strategy) = (self.focus(), self.strategy());
        let asked = |economy: Economy| self.economies.contains(&economy);
        let small = asked(Economy::Heads) || asked(Economy::Width);
        if strategy == Strategy::TopLayers && small && !asked(Economy::Blocks) {
            let why = "--strategy top-layers removes whole blocks or nothing; name blocks too";
            return Err(Failure::Usage(format!("--economies: {why}")));
        }
        if strategy != Strategy::Cost && asked(Economy::Keys) && !asked(Economy::Blocks) && !asked(Economy::Heads) {
            let why = "this strategy chooses keys where it looked for blocks or heads to remove; name those too";
            return Err(Failure::Usage(format!("--economies keys: {why}")));
        }
        let idle: Vec<&str> = self.economies.iter().filter(|e| !e.suits(focus, strategy)).map(|e| e.name()).collect();
        match idle.is_empty() {
            true => Ok(()),
            false => Err(Failure::Usage(format!(
                "--economies {}: nothing comes of it with this focus and strategy; bits are for --focus size, precision for speed, keys for speed without --strategy top-layers, tokens, merge and values for speed with --strategy cost",
                idle.join(",")
            ))),
        }
    }

    pub fn settings(&self, model: &Model) -> Settings {
        let (focus, strategy) = (self.focus(), self.strategy());
        let usual = || Economy::ALL.into_iter().filter(|economy| economy.is_usual()).collect();
        let asked = if self.economies.is_empty() { usual() } else { self.economies.clone() };
        let menu = asked.into_iter().filter(|economy| economy.suits(focus, strategy)).collect();
        // Few and short layers have few neurons to group.
        let width = model.architecture.layers.iter().flat_map(|l| &l.ffns).map(|f| f.up.outputs).max().unwrap_or(1);
        Settings {
            focus,
            budget: self.max_loss,
            strategy,
            menu,
            group: self.group.unwrap_or_else(|| strategy.group().min(width.div_ceil(4).max(1))),
            bottom_first: match self.from {
                Some(end) => end == EndArg::Bottom,
                None => bottom_first(model.architecture.head.kind),
            },
            thresholds: self.thresholds.unwrap_or_default(),
            most_rows: self.most_rows,
            seed: self.seed,
            trials: self.trials,
            last_steps: !self.tutor.recover,
        }
    }
}

/// `0.5%`; `0.005` too, as long as nobody can have meant percent.
pub fn share(text: &str) -> Result<f64, String> {
    let expected = "a share below 100% is expected, such as 0.5%";
    let number = |text: &str| {
        text.trim().parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| expected.to_string())
    };
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => 0.01 * number(percent)?,
        None => match number(text)? {
            share if share >= 0.1 => {
                return Err(format!("{text}% or {}%? Write it with a percent sign", 100.0 * share));
            }
            share => share,
        },
    };
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err(expected.into()) }
}

/// `1.005,1.02`.
pub fn thresholds(text: &str) -> Result<Thresholds, String> {
    let numbers = text.split(',').map(|number| number.trim().parse().ok()).collect::<Option<Vec<f64>>>();
    match numbers.as_deref() {
        Some(&[prune, approximate]) if prune >= 1.0 && approximate >= prune && approximate.is_finite() => {
            Ok(Thresholds { prune, approximate })
        }
        _ => Err("two multiples of the loss are expected, the second no smaller than the first: 1.005,1.02".into()),
    }
}

pub fn economy(text: &str) -> Result<Economy, String> {
    let names = Economy::ALL.map(Economy::name);
    let found = Economy::ALL.into_iter().find(|economy| economy.name() == text.trim());
    found.ok_or_else(|| match text.trim() {
        "ma" | "functions" | "softmax" | "relu" | "norm" | "norms" | "power_norm" | "clip" => {
            "a model must learn to do without a function, so it is not searched for; see sparing train transfer"
                .to_string()
        }
        _ => format!("there are {}", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::{share, thresholds};

    #[test]
    fn thresholds_are_two_multiples() {
        let found = thresholds("1.01, 1.05").unwrap();
        assert_eq!((found.prune, found.approximate), (1.01, 1.05));
        for text in ["", "1.01", "1.02,1.01", "0.9,1", "1,inf", "nan,2", "1,2,3"] {
            assert!(thresholds(text).unwrap_err().contains("1.005,1.02"), "{text}");
        }
    }

    #[test]
    fn half_a_percent_is_not_half() {
        assert_eq!(["0.5%", "0", "0.005", " 20 %"].map(|text| share(text).unwrap()), [0.005, 0.0, 0.005, 0.2]);
        for (text, said) in [
            ("0.5", "0.5% or 50%"),
            ("0.1", "0.1% or 10%"),
            ("1", "1% or 100%"),
            ("100%", "below"),
            ("-1%", "below"),
            ("x", "such as"),
            ("inf", "such as"),
            ("-inf%", "such as"),
            ("nan", "such as"),
        ] {
            let told = share(text).unwrap_err();
            assert!(told.contains(said), "{text}: {told}");
        }
    }
}
