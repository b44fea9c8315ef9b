/* Functions that look up constants. */
#pragma once

/* The first 1201 bits of 2 / pi after the binary point, in words from the highest. */
static const u32 TWO_OVER_PI[] = {
    0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
    0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484,
    0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F,
    0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B,
    0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08, 0x56033046, 0xFC7B0000,
};
/* 53 bits of 2 / pi, from a bit on that the exponent of x and the number of the segment determine. */
static inline f64 trig_preop(f64 x, u32 segment) {
    int exponent = (int)(bits64(x) >> 52 & 0x7FF), shift = (int)(segment & 31) * 53;
    if (exponent > 1077)
        shift += exponent - 1077;
    u64 part = 0;
    for (int k = shift; k < shift + 53; k++)
        part = part << 1 | (k < 1201 ? TWO_OVER_PI[k / 32] >> (31 - k % 32) & 1 : 0);
    return ldexp((f64)part, (exponent >= 1968 ? 128 : 0) - 53 - shift);
}
