//! Says whether the extension has the engine, and builds the library of the virtual GPU beside it, for the wheel.
//!
//! The engine needs Linux. Elsewhere the feature `engine` has no effect: so `pip install` builds what the system can have, without
//! options.
//!
//! The wheel carries two shared libraries: the extension that Python imports, and the library that a dry run preloads in its
//! child. They must not be one: the second defines the names of CUDA. Cargo builds one library of this kind per package, so a
//! second cargo builds the other one into this script's folder, where maturin finds it (`include` in pyproject.toml).
//!
//! Only the feature `virtual-gpu` asks for it, which maturin sets: a plain `cargo build` pays nothing. Elsewhere than on Linux
//! for x86-64 there is no library, and `nvcoll dryrun` says so.
use std::env::var;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(engine)");
    let is_linux = var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if var("CARGO_FEATURE_ENGINE").is_ok() && is_linux {
        println!("cargo::rustc-cfg=engine");
    }
    let is_x86_64 = var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    if var("CARGO_FEATURE_VIRTUAL_GPU").is_ok() && is_linux && is_x86_64 {
        build();
    }
}

fn build() {
    let out = var("OUT_DIR").expect("cargo sets OUT_DIR");
    let (out, package) = (Path::new(&out), Path::new("../nvcoll-vgpu"));
    for part in ["src", "build.rs", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", package.join(part).display());
    }
    println!("cargo::rerun-if-changed=../nvcoll-step/src/memory_constants.rs");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let target = var("TARGET").expect("cargo sets TARGET");
    let target_dir = out.join("vgpu");
    let profile = profile(out);
    let status = Command::new(var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["build", "--quiet", "--lib", "--profile", &profile, "--target", &target])
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_dir)
        .args(["--config", &format!("profile.{profile}.strip=true")])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the library of the virtual GPU was not built");
    let folder = if profile == "dev" { "debug" } else { &profile };
    let built = target_dir.join(&target).join(folder).join("libnvcoll_vgpu.so");
    std::fs::copy(built, out.join("libnvcoll_vgpu.so")).expect("the library of the virtual GPU can be copied");
}

/// The profile of the build: `PROFILE` says only which one it inherits, the folder of the output names it.
fn profile(out: &Path) -> String {
    let folder = out.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "build"));
    let name = folder.and_then(Path::parent).and_then(Path::file_name);
    match name.and_then(|name| name.to_str()) {
        Some("debug") | None => "dev".into(),
        Some(name) => name.into(),
    }
}
