/* Lists the kernels of the library that this program is linked with, in plain C. */
#include <stdio.h>

#include <tilewright/pack.h>

int main(void)
{
    const tw_pack* pack = tw_pack_table();
    uint64_t i;
    if(pack->schema != TW_PACK_SCHEMA)
    {
        fprintf(stderr, "the pack has schema %u, this program reads %d\n", (unsigned)pack->schema, TW_PACK_SCHEMA);
        return 1;
    }
    printf("%s for %s: %lu kernels\n", pack->name, pack->gpu, (unsigned long)pack->count);
    for(i = 0; i < pack->count; ++i)
    {
        const tw_pack_kernel* kernel = tw_pack_kernel_at(pack, i);
        printf("  %s: %s, %lu fields\n", kernel->slug, kernel->op, (unsigned long)kernel->field_count);
    }
    return 0;
}
