//! Where to compute, by name.

use burn::tensor::Device;
use sparing_model::Error;

/// The device of this name: `cpu`, and where the program was built with it `cuda` or `wgpu`.
pub fn device(name: &str) -> Result<Device, Error> {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    remember_kernels();
    match name {
        "cpu" => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(burn::tensor::DeviceIndex::Default)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Ok(Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        "cuda" | "wgpu" => Err(Error::new(format!(
            "this program was built without {name}; build it with `cargo build --release --features train,{name}`"
        ))),
        other => Err(Error::new(format!("no device is called {other:?}; there are cpu, cuda and wgpu"))),
    }
}

/// Keeps compiled kernels and the choices among them in the user's cache directory, so that only the first run on a
/// machine waits for them. A `cubecl.toml` of the user's decides where, if there is one.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn remember_kernels() {
    use cubecl::config::cache::CacheConfig;
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = true;
    if matches!(config.environment.path, CacheConfig::Target) {
        config.environment.path = CacheConfig::Global;
    }
    // Whoever asked for a device before has decided already.
    let _ = CubeClRuntimeConfig::try_set(config);
}
