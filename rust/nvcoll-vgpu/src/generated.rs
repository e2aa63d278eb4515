//! Functions that answer success and nothing else. `python tools/generate/vgpu_symbols.py --write` writes this file.
use crate::unanswered::note_unanswered;

macro_rules! succeed {
    ($($name:ident)*) => { $(
        #[no_mangle]
        extern "C" fn $name() -> usize {
            note_unanswered(const {
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero byte"),
                }
            });
            0
        }
    )* };
}

succeed! {
    cuFileBufDeregister cuFileBufRegister cuFileHandleDeregister cuFileHandleRegister cuFileRead cuFileWrite
    cublasCrotg_v2 cublasDrotg_v2 cublasDrotmg_v2 cublasSrotg_v2 cublasSrotmg_v2 cublasZrotg_v2
    cusparseLtDenseDescriptorInit cusparseLtInit cusparseLtMatDescriptorDestroy cusparseLtMatmul
    cusparseLtMatmulAlgGetAttribute cusparseLtMatmulAlgSelectionInit cusparseLtMatmulAlgSetAttribute
    cusparseLtMatmulDescSetAttribute cusparseLtMatmulDescriptorInit cusparseLtMatmulPlanDestroy cusparseLtMatmulPlanInit
    cusparseLtMatmulSearch cusparseLtSpMMACompress2 cusparseLtStructuredDescriptorInit ncclDevCommCreate
    ncclDevCommDestroy ncclGetLsaMultimemDevicePointer ncclGetPeerDevicePointer ncclPutSignal ncclSignal ncclWaitSignal
    nvshmem_barrier_all nvshmem_free nvshmem_info_get_version nvshmem_init nvshmem_malloc nvshmem_ptr
    nvshmem_selected_device_transport nvshmem_team_n_pes nvshmem_team_split_strided nvshmemid_hostlib_finalize
    nvshmemid_hostlib_init_attr nvshmemid_init_status nvshmemx_alltoallmem_on_stream nvshmemx_broadcastmem_on_stream
    nvshmemx_cumodule_init nvshmemx_get_uniqueid nvshmemx_getmem_on_stream nvshmemx_mc_ptr nvshmemx_putmem_on_stream
    nvshmemx_putmem_signal_on_stream nvshmemx_set_attr_uniqueid_args nvshmemx_signal_wait_until_on_stream
}
