use std::mem::MaybeUninit;

use proptest::prelude::*;

use super::convolution::{convolution, ConvolutionPass};
use super::graph::*;
use super::launches::*;
use super::recurrent::*;
use super::tensors::*;
use super::*;
use crate::arguments::{List, Room};
use crate::testing::{records_of, value_of};

const SUCCESS: c_int = 0;
const BAD_PARAM: c_int = 2000;

fn made(kind: c_int) -> Handle {
    value_of(0, |out| cudnnBackendCreateDescriptor(kind, out))
}

/// The bytes of a list, as an entry point takes them.
fn bytes<T: Copy>(list: &[T]) -> List<u8> {
    List::from(list).cast()
}

fn holds(descriptor: Handle, attribute: c_int, children: &[Handle]) {
    let status = cudnnBackendSetAttribute(descriptor, attribute, 15, children.len() as i64, bytes(children));
    assert_eq!(status, SUCCESS);
}

fn tensor(dtype: c_int, dimensions: &[i64]) -> Handle {
    let made = made(17);
    assert_eq!(cudnnBackendSetAttribute(made, 901, 1, 1, bytes(&[dtype])), SUCCESS);
    assert_eq!(cudnnBackendSetAttribute(made, 902, 3, dimensions.len() as i64, bytes(dimensions)), SUCCESS);
    made
}

#[test]
fn a_plan_that_the_heuristics_offer_logs_its_convolution() {
    let operation = made(10);
    let x = tensor(9, &[32, 64, 56, 56]);
    let strides = [56 * 56 * 64_i64, 1, 56 * 64, 64];
    assert_eq!(cudnnBackendSetAttribute(x, 903, 3, 4, bytes(&strides)), SUCCESS, "channels last");
    holds(operation, 704, &[x]);
    holds(operation, 703, &[tensor(9, &[128, 32, 3, 3])]);
    holds(operation, 705, &[tensor(9, &[32, 128, 28, 28])]);
    let (graph, heuristic, configuration, plan) = (made(15), made(4), made(3), made(5));
    holds(graph, 801, &[operation]);
    assert_eq!(cudnnBackendDestroyDescriptor(operation), SUCCESS, "the graph keeps it");
    holds(heuristic, 201, &[graph]);
    let mut offered = [configuration];
    let first = Room::from(&mut offered[..]).cast();
    let found = value_of(0, |out| cudnnBackendGetAttribute(heuristic, 202, 15, 1, out, first));
    assert_eq!(found, 1);
    holds(plan, 401, &[configuration]);
    let handle = value_of(0, |out| cudnnCreate(out));
    let records = records_of(|| assert_eq!(cudnnBackendExecute(handle, plan), SUCCESS));
    let [record] = records[..] else { panic!("{records:?}") };
    assert_eq!(record.args[..5], [32 * 28 * 28, 64, 32 * 9, 2, 0]);
    assert_eq!(record.args[5], 14 | 14 << 8 | 68 << 32);
}

#[test]
fn all_passes_of_a_convolution_have_the_same_operations() {
    let sizes = |pass| {
        let strides = [4800, 400, 20, 1];
        let product = convolution(pass, 0, &strides, [&[8, 12, 20, 20], &[24, 12, 5, 5], &[8, 24, 16, 16]]).unwrap();
        let records = records_of(|| product.log(0).unwrap());
        assert_eq!(records[0].args[4], 2, "channels come first");
        2 * records[0].args[..4].iter().product::<u64>()
    };
    let closed_form = 2 * 8 * 16 * 16 * 24 * 12 * 25;
    assert_eq!(
        [ConvolutionPass::Forward, ConvolutionPass::BackwardData, ConvolutionPass::BackwardFilter].map(sizes),
        [closed_form; 3]
    );
    assert!(convolution(ConvolutionPass::Forward, 0, &[], [&[8], &[1, 2], &[3]]).is_none());
}

#[test]
fn weights_of_a_projected_lstm_are_contiguous_by_gates_and_fill_their_space() {
    let layers = value_of(0, |out| cudnnCreateRNNDescriptor(out));
    assert_eq!(cudnnSetRNNDescriptor_v8(layers, 0, 2, 2, 1, 0, 0, 0, 0, 8, 6, 3, 2), SUCCESS);
    let (matrix, bias) =
        (value_of(0, |out| cudnnCreateTensorDescriptor(out)), value_of(0, |out| cudnnCreateTensorDescriptor(out)));
    let mut places = Vec::new();
    for (pseudo, linear) in (0..4).flat_map(|pseudo| (0..9).map(move |linear| (pseudo, linear))) {
        let mut at = [MaybeUninit::new(0), MaybeUninit::new(0)];
        let [matrix_at, bias_at] = &mut at;
        let status =
            cudnnGetRNNWeightParams(0, layers, pseudo, 0, 4096, linear, matrix, Some(matrix_at), bias, Some(bias_at));
        assert_eq!(status, SUCCESS);
        for (at, descriptor) in at.into_iter().zip([matrix, bias]) {
            // SAFETY: it was initialized with 0.
            let at = unsafe { at.assume_init() };
            if at != 0 {
                places.push((at - 4096, dimensions_of(descriptor).unwrap().iter().product::<i64>() as usize * 4));
            }
        }
    }
    places.sort_unstable();
    let end = places.iter().fold(0, |end, (at, bytes)| {
        assert_eq!(*at, end, "no gap, no overlap");
        at + bytes
    });
    assert_eq!(end, value_of(0, |out| cudnnGetRNNWeightSpaceSize(0, layers, out)));
}

#[test]
fn a_recurrent_pass_logs_the_products_of_each_direction() {
    let (layers, data) =
        (value_of(0, |out| cudnnCreateRNNDescriptor(out)), value_of(0, |out| cudnnCreateRNNDataDescriptor(out)));
    assert_eq!(cudnnSetRNNDescriptor_v8(layers, 0, 3, 2, 1, 0, 2, 0, 0, 8, 6, 0, 1), SUCCESS);
    assert_eq!(cudnnSetRNNDataDescriptor(data, 2, 0, 5, 7), SUCCESS);
    let handle = value_of(0, |out| cudnnCreate(out));
    let records = records_of(|| assert_eq!(cudnnRNNForward(handle, layers, 1, 0, data), SUCCESS));
    let shapes: Vec<_> = records.iter().map(|record| record.args[..4].to_vec()).collect();
    assert_eq!(shapes, [[18, 35, 8, 1], [18, 7, 6, 5], [18, 35, 8, 1], [18, 7, 6, 5]]);
}

#[test]
fn unknown_handles_are_errors() {
    assert_eq!(cudnnBackendExecute(0, 0), BAD_PARAM);
    assert_eq!(cudnnBatchNormalizationBackwardEx(0), BAD_PARAM);
    assert_eq!(cudnnRNNForward(0, 64, 0, 0, 0), BAD_PARAM);
    assert_eq!(cudnnDestroyTensorDescriptor(made(17)), BAD_PARAM);
}

proptest! {
    #[test]
    fn any_attribute_gives_a_status(
        attribute in any::<c_int>(), of_type in -1..40, count in -1..5i64, value in any::<[u64; 4]>(), handle in any::<usize>(),
    ) {
        let descriptor = made(10);
        let status = cudnnBackendSetAttribute(descriptor, attribute, of_type, count, bytes(&value));
        prop_assert!([SUCCESS, BAD_PARAM].contains(&status));
        let mut room = value;
        let first = Room::from(&mut room[..]).cast();
        let mut found = MaybeUninit::new(0);
        let status = cudnnBackendGetAttribute(descriptor, attribute, of_type, count, Some(&mut found), first);
        prop_assert!([SUCCESS, BAD_PARAM].contains(&status));
        prop_assert_eq!(cudnnBackendSetAttribute(handle, attribute, of_type, count, bytes(&value)), BAD_PARAM);
    }

    #[test]
    fn any_sizes_of_a_convolution_give_a_product_or_none(sizes in any::<[[i64; 4]; 3]>()) {
        if let Some(product) = convolution(ConvolutionPass::Forward, 0, &sizes[0], [&sizes[0], &sizes[1], &sizes[2]]) {
            let _ = product.log(0);
        }
    }
}
