//! `sparing train average`.

use crate::console::Out;
use crate::failure::Failure;
use crate::load;
use clap::Args;
use std::path::PathBuf;

/// Averages models of one shape: several trainings from the same start, or two stages of one
///
/// Often better than each of them, and no dearer to run. The result has the first model's configuration and tokenizer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing train average out/seed-0 out/seed-1 out/seed-2 --out soup
  sparing train average late early --weights 0.7,0.3 --out between")]
pub struct AverageArgs {
    /// Directories in Hugging Face layout, two at least
    #[arg(value_name = "MODEL", num_args = 2.., required = true)]
    models: Vec<String>,

    /// How much each counts [default: all the same]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    weights: Vec<f64>,

    /// Directory for the result
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the command.
pub fn average(args: &AverageArgs) -> Result<(), Failure> {
    let (models, weights) = (args.models.len(), args.weights.len());
    if weights != 0 && weights != models {
        return Err(Failure::Usage(format!("--weights: {weights} numbers for {models} models")));
    }
    let total: f64 = args.weights.iter().sum();
    if weights != 0 && !(total.is_finite() && total != 0.0) {
        return Err(Failure::Usage(format!("--weights: they add up to {total}; they must not cancel out")));
    }
    let opened = args.models.iter().map(|name| load::open_sound(name, None)).collect::<Result<Vec<_>, _>>()?;
    let weight = |number: usize| args.weights.get(number).copied().unwrap_or(1.0);
    let pairs: Vec<_> = opened.iter().enumerate().map(|(number, model)| (model, weight(number))).collect();
    sparing_train::average(&pairs, &args.out)?;
    let mut out = Out::new();
    out.line(&format!("{}: the mean of {models} models", args.out.display()))?;
    out.flush()
}
