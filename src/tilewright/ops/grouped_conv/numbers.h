/* The numbers of a convolution that estimates read, from its arguments: problem_numbers of estimate.py in C. */

/* What a kernel is compiled for, and the arguments do not tell. Flags are 0 or 1; neither means forward. */
typedef struct tw_grouped_conv_kind {
    double backward_data, backward_weight, bits_a, bits_b, bits_c;
} tw_grouped_conv_kind;

typedef struct tw_grouped_conv_numbers {
    double m, n, k, batch, split, read_bytes, written_bytes, written, channels, taps, image, stride;
} tw_grouped_conv_numbers;

static tw_grouped_conv_numbers tw_grouped_conv_numbers_of(const tw_grouped_conv_args* args,
                                                          const tw_grouped_conv_kind* kind)
{
    const double images = (double)args->n, groups = (double)args->g;
    const double channels_in = (double)args->channels_in, channels_out = (double)args->channels_out;
    const double own_in = channels_in / groups, own_out = channels_out / groups;
    double input = 1, filter = 1, output = 1, stride = 1;
    /* Of the gradient of the input: its products, and the positions and taps of each. */
    double parts = 1, positions = 1, part_taps = 1;
    double elements_in, elements_out, weights, bytes_a, bytes_b;
    tw_grouped_conv_numbers numbers;
    int d;
    for(d = 0; d < args->ndim && d < TW_GROUPED_CONV_MAX_NDIM; ++d)
    {
        const int64_t size = args->input_size[d], taps = args->filter_size[d], step = args->stride[d];
        const int64_t reach = (taps - 1) * args->dilation[d] + 1;
        const int64_t room  = size + args->left_pad[d] + args->right_pad[d] - reach;
        input *= (double)size;
        filter *= (double)taps;
        stride *= (double)step;
        output *= floor((double)room / (double)step) + 1;
        parts *= (double)(step < taps ? step : taps);
        positions *= ceil((double)size / (double)step);
        part_taps *= ceil((double)taps / (double)step);
    }
    elements_in  = images * channels_in * input;
    elements_out = images * channels_out * output;
    weights      = channels_out * channels_in / groups * filter;

    numbers.batch = groups;
    if(kind->backward_data > 0)
    {
        numbers.m       = images * positions;
        numbers.n       = own_in;
        numbers.k       = part_taps * own_out;
        numbers.batch   = groups * parts;
        bytes_a         = elements_out * kind->bits_a / 8;
        bytes_b         = weights * kind->bits_b / 8;
        numbers.written = elements_in;
    }
    else if(kind->backward_weight > 0)
    {
        numbers.m       = own_out;
        numbers.n       = filter * own_in;
        numbers.k       = images * output;
        bytes_a         = elements_out * kind->bits_a / 8;
        bytes_b         = elements_in * kind->bits_b / 8;
        numbers.written = weights;
    }
    else
    {
        numbers.m       = images * output;
        numbers.n       = own_out;
        numbers.k       = filter * own_in;
        bytes_a         = elements_in * kind->bits_a / 8;
        bytes_b         = weights * kind->bits_b / 8;
        numbers.written = elements_out;
    }
    numbers.split         = (double)args->k_batch;
    numbers.read_bytes    = bytes_a + bytes_b;
    numbers.written_bytes = numbers.written * kind->bits_c / 8;
    numbers.channels      = own_in;
    numbers.taps          = filter;
    numbers.image         = output;
    numbers.stride        = stride;
    return numbers;
}
