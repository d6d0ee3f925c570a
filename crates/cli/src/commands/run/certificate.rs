//! `sparing run --certificate`: exact where the cheap configuration is too close to call.

use super::RunArgs;
use crate::failure::Failure;
use crate::{cascade, console};
use clap::Args;
use sparing_engine::Options;
use sparing_model::{HeadKind, Model};
use sparing_tasks::{Certificate, Decision, Escalate, Tally};
use std::path::PathBuf;

/// Which promise to keep.
#[derive(Debug, Args)]
#[command(next_help_heading = "Certified cascade")]
pub struct CertificateArgs {
    /// Run the exact model where the cheap one (--precision, --attention) is too close to call, as this certificate says;
    /// made by `sparing eval --certify 0.99 --save-certificate FILE`
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,

    /// The share of decisions that the certificate must promise at least
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    certify: Option<f64>,
}

impl CertificateArgs {
    /// The certificate, if one is named, for what this model decides with these options.
    pub fn read(&self, args: &RunArgs, model: &Model, options: &Options) -> Result<Option<Certificate>, Failure> {
        let Some(path) = &self.certificate else {
            return match self.certify {
                Some(_) => Err(Failure::Usage(
                    "--certify: a certificate is needed; make one with sparing eval --certify --save-certificate FILE, then give --certificate FILE"
                        .to_string(),
                )),
                None => Ok(None),
            };
        };
        let found = Certificate::read(path)?;
        let certify = found.target.certify;
        if let Some(wanted) = self.certify.filter(|wanted| wanted.is_nan() || *wanted > certify) {
            return Err(Failure::new(format!("{}: promises {certify}, not {wanted}", path.display())));
        }
        let tolerance = match found.decision {
            Decision::Number { tolerance } => Some(tolerance),
            _ => None,
        };
        let kind = model.architecture.head.kind;
        let decision = match Decision::of(kind, tolerance.filter(|_| kind == HeadKind::Regress)) {
            Ok(Decision::Labels { .. }) => Decision::Labels { threshold: args.threshold },
            Ok(Decision::Answer { .. }) => Decision::Answer { may_be_unanswerable: args.unanswerable },
            other => other?,
        };
        let about = cascade::fingerprint(model, options)?;
        found.check_for(&about, decision).map_err(|e| Failure::from(e).at(path.display()))?;
        Ok(Some(found))
    }
}

/// Says what was run exactly.
pub fn tell(certificate: &Certificate, tally: Tally) {
    if certificate.escalate == Escalate::Everything {
        return console::note(
            "the certificate promises nothing of the cheap configuration: everything was run exactly",
        );
    }
    let Tally { inputs, escalated } = tally;
    let (share, confidence) = (100.0 * certificate.target.certify, 100.0 * certificate.target.confidence);
    console::note(&format!(
        "{escalated} of {inputs} inputs were run exactly; of inputs like those of {}, {share}% are decided as by the exact model, with {confidence}% confidence",
        certificate.source
    ));
}
