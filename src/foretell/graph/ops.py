"""The vocabulary of a Graph: operator classes, phases, number formats, storage roles."""

from __future__ import annotations

from enum import IntEnum


class OpClass(IntEnum):
    """What kind of kernel an operator runs; predictors have constants per class."""

    OTHER = 0
    MATMUL = 1
    BMM = 2
    CONV = 3
    ATTENTION = 4
    NORM = 5
    SOFTMAX = 6
    ELEMENTWISE = 7
    REDUCTION = 8
    POOL = 9
    EMBEDDING = 10
    INDEX = 11
    COPY = 12
    FILL = 13
    RNN = 14
    RESAMPLE = 15
    SCAN = 16
    LOSS = 17
    RANDOM = 18
    OPTIMIZER = 19

    @property
    def label(self) -> str:
        """Lower-case name for tables and JSON."""
        return self.name.lower()


class Phase(IntEnum):
    """When in a step an operator runs."""

    FORWARD = 0
    BACKWARD = 1
    RECOMPUTE = 2
    OPTIMIZER = 3

    @property
    def label(self) -> str:
        """Lower-case name for tables and JSON."""
        return self.name.lower()


class DType(IntEnum):
    """Number formats, as stored in graph columns."""

    FP32 = 0
    FP16 = 1
    BF16 = 2
    FP64 = 3
    FP8 = 4
    INT64 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    BOOL = 9
    COMPLEX64 = 10
    COMPLEX128 = 11

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """Whether the format holds real floating-point numbers."""
        return self <= DType.FP8


_ITEMSIZE = {
    DType.FP32: 4,
    DType.FP16: 2,
    DType.BF16: 2,
    DType.FP64: 8,
    DType.FP8: 1,
    DType.INT64: 8,
    DType.INT32: 4,
    DType.INT16: 2,
    DType.INT8: 1,
    DType.BOOL: 1,
    DType.COMPLEX64: 8,
    DType.COMPLEX128: 16,
}


class Role(IntEnum):
    """What a piece of memory holds."""

    PARAMETER = 0
    BUFFER = 1
    INPUT = 2
    GRADIENT = 3
    SAVED = 4
    TEMPORARY = 5

    @property
    def label(self) -> str:
        """Lower-case name for tables and JSON."""
        return self.name.lower()


_CLASS_BY_NAME: dict[str, OpClass] = {
    name: op_class
    for op_class, names in {
        OpClass.MATMUL: "mm addmm linear mv addmv dot vdot addr _scaled_mm _addmm_activation",
        OpClass.BMM: "bmm baddbmm addbmm _grouped_mm",
        OpClass.CONV: "convolution convolution_backward _convolution convolution_overrideable "
        "mkldnn_convolution cudnn_convolution",
        OpClass.ATTENTION: "attention attention_backward",
        OpClass.NORM: "rms_norm rms_norm_backward native_layer_norm "
        "native_layer_norm_backward native_batch_norm "
        "native_batch_norm_backward _native_batch_norm_legit native_group_norm "
        "native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward "
        "batch_norm_backward _batch_norm_with_update _batch_norm_no_update "
        "cudnn_batch_norm cudnn_batch_norm_backward _weight_norm_interface "
        "_weight_norm_interface_backward",
        OpClass.SOFTMAX: "_softmax _softmax_backward_data _log_softmax "
        "_log_softmax_backward_data _safe_softmax",
        OpClass.REDUCTION: "sum mean amax amin max min argmax argmin var std var_mean std_mean "
        "norm linalg_vector_norm logsumexp prod any all count_nonzero aminmax "
        "_cdist_forward _cdist_backward _pdist_forward _pdist_backward nansum median "
        "_foreach_norm mode kthvalue bincount histc",
        OpClass.POOL: "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d "
        "avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward "
        "adaptive_max_pool2d adaptive_max_pool2d_backward max_pool3d_with_indices "
        "max_pool3d_with_indices_backward avg_pool3d avg_pool3d_backward "
        "_adaptive_avg_pool3d _adaptive_avg_pool3d_backward avg_pool1d adaptive_avg_pool1d "
        "adaptive_max_pool3d adaptive_max_pool3d_backward "
        "max_unpool2d im2col col2im fractional_max_pool2d",
        OpClass.EMBEDDING: "embedding embedding_dense_backward _embedding_bag "
        "_embedding_bag_dense_backward _embedding_bag_forward_only "
        "embedding_renorm_ _embedding_bag_per_sample_weights_backward",
        OpClass.INDEX: "index index_put index_put_ _index_put_impl_ _unsafe_index "
        "_unsafe_index_put gather scatter scatter_ scatter_add scatter_add_ index_select "
        "index_add index_add_ index_copy index_copy_ masked_select nonzero take "
        "scatter_reduce scatter_reduce_ masked_scatter masked_scatter_ "
        "_unsafe_masked_index _unsafe_masked_index_put_accumulate grid_sampler_2d "
        "grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward put_ index_fill "
        "masked_scatter_backward value_selecting_reduction_backward",
        OpClass.COPY: "clone copy_ _to_copy cat stack contiguous slice_backward "
        "select_backward constant_pad_nd roll flip repeat_interleave repeat slice_scatter "
        "select_scatter unfold_backward diagonal_backward split_with_sizes_copy pixel_shuffle "
        "pixel_unshuffle channel_shuffle native_channel_shuffle reflection_pad2d "
        "reflection_pad2d_backward replication_pad2d replication_pad2d_backward "
        "reflection_pad1d reflection_pad1d_backward replication_pad1d "
        "replication_pad3d replication_pad1d_backward copy as_strided_scatter "
        "as_strided_copy tril triu tril_ triu_ rot90 diag_embed trace_backward",
        OpClass.FILL: "zeros zeros_like ones ones_like full full_like fill_ zero_ new_zeros "
        "new_ones new_full arange scalar_tensor eye linspace fill tril_indices "
        "triu_indices one_hot",
        OpClass.RNN: "rnn rnn_backward mkldnn_rnn_layer mkldnn_rnn_layer_backward "
        "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell "
        "_thnn_fused_gru_cell_backward",
        OpClass.RESAMPLE: "upsample_bilinear2d upsample_bilinear2d_backward upsample_nearest2d "
        "upsample_nearest2d_backward upsample_bicubic2d upsample_bicubic2d_backward "
        "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_bicubic2d_aa_backward "
        "_upsample_bilinear2d_aa_backward upsample_linear1d upsample_linear1d_backward "
        "upsample_nearest1d upsample_nearest1d_backward upsample_nearest3d "
        "upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d_backward "
        "_upsample_nearest_exact2d _upsample_nearest_exact2d_backward",
        OpClass.SCAN: "cumsum cumprod sort topk argsort cummax cummin logcumsumexp searchsorted "
        "bucketize unique_dim _unique2 multinomial histc",
        OpClass.LOSS: "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward "
        "mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss "
        "huber_loss_backward binary_cross_entropy binary_cross_entropy_backward "
        "cross_entropy_ cross_entropy_backward_ "
        "binary_cross_entropy_with_logits _ctc_loss _ctc_loss_backward",
        OpClass.RANDOM: "native_dropout bernoulli bernoulli_ uniform_ normal_ rand randn "
        "rand_like randn_like randint randperm random_ normal exponential_ native_dropout_backward "
        "multinomial rrelu_with_noise",
    }.items()
    for name in names.split()
}

# Complex transforms and dense solvers cost far more than one pass over their data.
_OTHER = frozenset(
    (
        "_fft_r2c _fft_c2r _fft_c2c stft istft linalg_eigh linalg_svd _linalg_svd linalg_qr "
        "linalg_inv_ex linalg_solve_ex _linalg_solve_ex cholesky linalg_cholesky_ex lu_unpack "
        "linalg_lu_factor_ex triangular_solve _linalg_det linalg_eig"
    ).split()
)


def classify(name: str) -> OpClass:
    """The class of an operator by its base name, e.g. 'convolution_backward'.

    An operator nobody listed reads its inputs and writes its outputs once: elementwise.
    """
    found = _CLASS_BY_NAME.get(name)
    if found is not None:
        return found
    return OpClass.OTHER if name in _OTHER else OpClass.ELEMENTWISE
