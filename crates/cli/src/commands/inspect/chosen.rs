//! What an economy of attention saves, beside exact attention.

use super::InspectArgs;
use super::cost::Work;
use crate::console::Out;
use crate::failure::Failure;
use crate::interrupt;
use crate::stats::Sample;
use crate::table::{Align, Table, seconds};
use serde::Serialize;
use sparing_engine::{Engine, Options};
use sparing_model::{AttentionPlan, Batch, Model};

/// The same model with exact attention and without.
pub struct Rivals {
    attention: String,
    exact: Engine,
    chosen: Engine,
}

/// What was measured: medians of runs in turns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chosen {
    /// How attention is economised.
    attention: String,
    /// Seconds of scores and of mixing values, exact and economised; with all that choosing takes.
    attention_seconds: [f64; 2],
    /// Seconds of the whole.
    seconds: [f64; 2],
}

impl Rivals {
    pub fn compile(args: &InspectArgs, model: &Model) -> Result<Rivals, Failure> {
        let options = args.attention.apply(args.machine.options(), model)?;
        let exact = Options { attention: Some(AttentionPlan::default()), ..options.clone() };
        let attention = options.attention.as_ref().map(ToString::to_string).unwrap_or_default();
        Ok(Rivals { attention, exact: Engine::compile(model, &exact)?, chosen: Engine::compile(model, &options)? })
    }

    /// Runs both in turns, so that whatever else the machine is at disturbs both alike.
    pub fn race(&self, work: &Work, repeats: usize) -> Result<Chosen, Failure> {
        let engines = [&self.exact, &self.chosen];
        let (mut attention, mut all) = ([0.0; 2], [0.0; 2]);
        for batch in work.timed() {
            let mut runs = [const { (Vec::new(), Vec::new()) }; 2];
            for engine in engines {
                seconds_of(engine, batch)?;
            }
            for _ in 0..repeats {
                interrupt::check()?;
                for (engine, (attention, all)) in engines.into_iter().zip(&mut runs) {
                    let (of_attention, of_all) = seconds_of(engine, batch)?;
                    attention.push(of_attention);
                    all.push(of_all);
                }
            }
            for (place, (of_attention, of_all)) in runs.into_iter().enumerate() {
                attention[place] += Sample::new(of_attention).median();
                all[place] += Sample::new(of_all).median();
            }
        }
        Ok(Chosen { attention: self.attention.clone(), attention_seconds: attention, seconds: all })
    }
}

/// Of attention and of everything.
fn seconds_of(engine: &Engine, batch: &Batch) -> Result<(f64, f64), Failure> {
    let (_, times) = engine.profile(batch)?;
    let attention = times.iter().filter(|time| ["attention", "importance", "values"].contains(&time.part));
    Ok((attention.map(|time| time.seconds).sum(), times.iter().map(|time| time.seconds).sum()))
}

impl Chosen {
    /// Prints it for people.
    pub fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let right = Align::Right;
        let with = format!("with {}", self.attention);
        let columns = [("in turns", Align::Left), ("exact", right), (with.as_str(), right), ("times faster", right)];
        let mut table = Table::new(&columns);
        for (name, [exact, chosen]) in [("attention", self.attention_seconds), ("the whole", self.seconds)] {
            let ratio = if chosen > 0.0 { format!("{:.2}", exact / chosen) } else { String::new() };
            table.row([name.to_string(), seconds(exact), seconds(chosen), ratio]);
        }
        out.text(&table.text(out.paint))
    }
}
