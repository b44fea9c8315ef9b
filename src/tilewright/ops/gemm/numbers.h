/* The numbers of a GEMM that estimates read, from its arguments: problem_numbers of estimate.py in C. */

/* What a kernel is compiled for, and the arguments do not tell. */
typedef struct tw_gemm_kind {
    double bits_a, bits_b, bits_c, num_d;
} tw_gemm_kind;

typedef struct tw_gemm_numbers {
    double m, n, k, batch, split, read_bytes, written_bytes;
} tw_gemm_numbers;

static tw_gemm_numbers tw_gemm_numbers_of(const tw_gemm_args* args, const tw_gemm_kind* kind)
{
    const double m = (double)args->m, n = (double)args->n, k = (double)args->k, batch = (double)args->batch;
    const double read = m * k * kind->bits_a + k * n * kind->bits_b + m * n * kind->bits_c * kind->num_d;
    tw_gemm_numbers numbers;
    numbers.m             = m;
    numbers.n             = n;
    numbers.k             = k;
    numbers.batch         = batch;
    numbers.split         = (double)args->k_batch;
    numbers.read_bytes    = batch * read / 8;
    numbers.written_bytes = batch * m * n * kind->bits_c / 8;
    return numbers;
}
