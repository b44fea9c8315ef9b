/* The numbers of an attention problem that estimates read, from its arguments: problem_numbers of workload.py in C.
 *
 * In group mode the lengths of sequences are in device memory. Here all are taken to be as long as the longest; Python
 * knows their sum.
 */

/* What a kernel is compiled for, and the arguments do not tell. Of the flags, which are 0 or 1, at most one is set;
 * none of them means a family with scores and one result. */
typedef struct tw_fmha_kind {
    double combine, appendkv, dot_do_o, convert_dq, splitkv, dq_dk_dv;
    double bits, bits_o, bits_bias;
} tw_fmha_kind;

typedef struct tw_fmha_numbers {
    double sequences, heads, group, queries, keys, columns, splits, uneven;
    double seen_keys, seen_queries, moving_keys, moving_queries, longest_keys, longest_queries;
    double read_bytes, written_bytes, hdim_q, hdim_v, bits;
} tw_fmha_numbers;

/* What a row (a query, or a key) sees of the other side. */
typedef struct tw_fmha_sight {
    double mean;    /* over all rows */
    double most;    /* of any row */
    double touched; /* by at least one row */
    double moving;  /* ends of the visible range, of two, that move from row to row: mean over rows */
} tw_fmha_sight;

static int64_t tw_fmha_least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t tw_fmha_most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t tw_fmha_clamp(int64_t value, int64_t most) { return tw_fmha_most(0, tw_fmha_least(value, most)); }

/* The sum over i below count of i + offset, each at least 0 and at most `most`. */
static double tw_fmha_clamped_sum(int64_t count, int64_t offset, int64_t most)
{
    const int64_t start = tw_fmha_clamp(-offset, count);       /* the first i whose term is not below 0 */
    const int64_t stop  = tw_fmha_clamp(most - offset, count); /* the first whose term is `most` */
    /* One of the two factors is even, so the half is whole. */
    const int64_t ramp = (stop - start) * (start + stop - 1) / 2 + (stop - start) * offset;
    return (double)(ramp + (count - stop) * most);
}

/* Part of the i below count for which i + offset is inside 0 and `most`. */
static double tw_fmha_moving(int64_t count, int64_t offset, int64_t most)
{
    const int64_t inside = tw_fmha_clamp(most - offset, count) - tw_fmha_clamp(1 - offset, count);
    return (double)tw_fmha_most(0, inside) / (double)count;
}

/* Row i sees the columns from i + low to i + high that there are, and the first `sink` before them. */
static tw_fmha_sight tw_fmha_band(int64_t rows, int64_t columns, int64_t low, int64_t high, int64_t sink)
{
    const double first   = tw_fmha_clamped_sum(rows, low, columns) / (double)rows;
    const double last    = tw_fmha_clamped_sum(rows, high + 1, columns) / (double)rows;
    const int64_t widest = tw_fmha_least(high - low + 1 + sink, columns);
    const int64_t spread = tw_fmha_clamp(rows + high, columns) - tw_fmha_clamp(low, columns);
    const double seen    = last - first + fmin((double)sink, first);
    tw_fmha_sight sight;
    sight.mean    = fmin(seen, (double)columns);
    sight.most    = (double)tw_fmha_most(1, tw_fmha_least(widest, tw_fmha_clamp(rows + high, columns)));
    sight.touched = (double)tw_fmha_most(1, tw_fmha_least(spread + sink, columns));
    sight.moving  = tw_fmha_moving(rows, low, columns) + tw_fmha_moving(rows, high + 1, columns);
    return sight;
}

static tw_fmha_sight tw_fmha_all_of(int64_t columns)
{
    tw_fmha_sight sight = {0, 0, 0, 0};
    sight.mean = sight.most = sight.touched = (double)columns;
    return sight;
}

/* Bytes that come from memory and that go there, each once. */
static void tw_fmha_bytes(const tw_fmha_args* args, const tw_fmha_kind* kind, double keys, double* read, double* written)
{
    const double fp32 = 4, size = kind->bits / 8, size_o = kind->bits_o / 8;
    const double rows = (double)(args->batch * args->seqlen_q * args->heads);
    const double q = rows * (double)args->hdim_q, o = rows * (double)args->hdim_v, per_row = rows * fp32;
    const double tokens = (double)args->batch * (kind->appendkv > 0 ? (double)args->seqlen_new : keys);
    const double kv     = tokens * (double)args->kv_heads * (double)(args->hdim_q + args->hdim_v) * size;
    const double lse    = args->wants_lse != 0 ? per_row : 0;
    const double splits = (double)args->num_splits, parts = (double)args->dq_parts;
    const double scores = rows * keys;
    const double bias   = args->bias_kind == TW_FMHA_ELEMENTWISE ? scores * (kind->bits_bias / 8) : 0;
    if(kind->combine > 0)
    {
        *read    = splits * (o * fp32 + per_row);
        *written = o * size_o + lse;
    }
    else if(kind->appendkv > 0)
        *read = *written = kv + (args->rotary != TW_FMHA_NO_ROTARY ? q * size : 0);
    else if(kind->dot_do_o > 0)
    {
        *read    = 2 * o * size_o;
        *written = per_row;
    }
    else if(kind->convert_dq > 0)
    {
        *read    = parts * q * fp32;
        *written = q * size;
    }
    else
    {
        *read = q * size + kv + bias;
        if(kind->dq_dk_dv > 0)
        {
            *read += o * size_o + 2 * per_row;
            *written = parts * q * fp32 + kv + (args->bias_gradient != 0 ? bias : 0);
        }
        else if(kind->splitkv > 0)
            *written = splits * (o * fp32 + per_row);
        else
            *written = o * size_o + lse;
        *written += args->wants_randval != 0 ? scores : 0;
    }
}

static tw_fmha_numbers tw_fmha_numbers_of(const tw_fmha_args* args, const tw_fmha_kind* kind)
{
    const int64_t queries = args->seqlen_q, keys = args->seqlen_k, far = queries + keys;
    const int scored = !(kind->combine > 0 || kind->appendkv > 0 || kind->dot_do_o > 0 || kind->convert_dq > 0);
    const int64_t shift = args->mask == TW_FMHA_BOTTOM_RIGHT ? keys - queries : 0;
    /* An end without limit is farther away than any row. */
    const int64_t left  = args->window_left < 0 ? far : tw_fmha_least(args->window_left, far);
    const int64_t right = args->window_right < 0 ? far : tw_fmha_least(args->window_right, far);
    tw_fmha_sight by_query = tw_fmha_all_of(keys), by_key = tw_fmha_all_of(queries);
    tw_fmha_numbers numbers;
    int64_t rows = queries, inner = keys;
    if(args->mask != TW_FMHA_NO_MASK)
    {
        by_query = tw_fmha_band(queries, keys, shift - left, shift + right, args->sink);
        by_key   = tw_fmha_band(keys, queries, -shift - right, -shift + left, 0);
    }
    if(kind->combine > 0)
        inner = args->num_splits;
    else if(kind->appendkv > 0)
    {
        rows  = tw_fmha_most(args->seqlen_new, args->rotary != TW_FMHA_NO_ROTARY ? queries : 1);
        inner = 1;
    }
    else if(!scored)
        inner = kind->convert_dq > 0 ? args->dq_parts : 1;

    numbers.sequences       = (double)args->batch;
    numbers.heads           = (double)args->heads;
    numbers.group           = (double)(args->heads / tw_fmha_most(1, args->kv_heads));
    numbers.queries         = (double)rows;
    numbers.keys            = (double)inner;
    numbers.columns         = (double)(kind->convert_dq > 0 ? args->hdim_q : args->hdim_v);
    numbers.splits          = kind->splitkv > 0 ? (double)tw_fmha_most(args->num_splits, 1) : 1;
    numbers.uneven          = 0;
    numbers.seen_keys       = scored ? by_query.mean : (double)inner;
    numbers.seen_queries    = scored ? by_key.mean : (double)rows;
    numbers.moving_keys     = scored ? by_query.moving : 0;
    numbers.moving_queries  = scored ? by_key.moving : 0;
    numbers.longest_keys    = scored ? by_query.most : (double)inner;
    numbers.longest_queries = scored ? by_key.most : (double)rows;
    numbers.hdim_q          = (double)args->hdim_q;
    numbers.hdim_v          = (double)args->hdim_v;
    numbers.bits            = kind->bits;
    tw_fmha_bytes(args, kind, scored ? by_query.touched : (double)keys, &numbers.read_bytes, &numbers.written_bytes);
    return numbers;
}
