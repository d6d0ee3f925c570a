//! `sparing serve`: a model behind HTTP.

#[cfg(feature = "serve")]
mod options;

use crate::failure::Failure;

#[cfg(feature = "serve")]
pub use options::ServeArgs;

/// Runs the command.
#[cfg(feature = "serve")]
pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let mut out = crate::console::Out::new();
    let mut told = Ok(());
    let tell = |address: std::net::SocketAddr| {
        told = out.line(&format!("http://{address}")).and_then(|()| out.flush());
    };
    sparing_serve::serve(args.settings()?, tell)?;
    told
}

/// Serves models over HTTP (not in this build: needs the cargo feature `serve`)
#[cfg(not(feature = "serve"))]
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// What a build with the server would do
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

/// Says what to do instead.
#[cfg(not(feature = "serve"))]
pub fn serve(_: &ServeArgs) -> Result<(), Failure> {
    Err(Failure::new(
        "this program was built without the server; build it with `cargo build --release --features serve`",
    ))
}
