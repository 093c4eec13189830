/*
 * Pseudo-random numbers: splitmix64 (Steele, Lea and Flood 2014) to mix and to seed, xorshift64 (Marsaglia 2003) for
 * streams. The Rust body uses the same, so that both languages look up and delete the same sequence of keys.
 */
#ifndef PEERS_RANDOM_H
#define PEERS_RANDOM_H

#include <stdint.h>

/* The output function of splitmix64: a bijection on 64 bits. */
static inline uint64_t mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* State of the stream of number `stream`; never 0, where xorshift would stay. */
static inline uint64_t stream_of(uint64_t seed, uint64_t stream)
{
	return mix64(mix64(seed) + stream) | 1;
}

static inline uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* Uniform in 0..bound, by the high half of a product (Lemire 2019), without its rejection step: the bias is below
 * bound / 2^64. */
static inline uint64_t next_below(uint64_t *state, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)next_random(state) * bound) >> 64);
}

#endif
