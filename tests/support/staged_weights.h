// Weights of an engine's arenas in tests: put there, and read as an Arena has them.
#ifndef TANDEM_TESTS_SUPPORT_STAGED_WEIGHTS_H_
#define TANDEM_TESTS_SUPPORT_STAGED_WEIGHTS_H_

#include <cstdint>
#include <memory>

#include "common/model/arena.h"
#include "common/model/packed_arena.h"
#include "common/model/random_init.h"

namespace tandem::testing {

// Random weights of the model, or of the part of it that the arena's table has.
inline void StageRandom(const model::ModelSpec& spec, uint64_t seed, model::PackedArena& to) {
  model::Arena plain(to.arena().table(), to.arena().dtype());
  model::RandomInit(spec, seed, plain);
  to.CopyFrom(plain);
}

inline std::unique_ptr<model::Arena> PlainCopy(const model::PackedArena& from) {
  auto plain = std::make_unique<model::Arena>(from.arena().table(), from.arena().dtype());
  from.CopyTo(*plain);
  return plain;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_STAGED_WEIGHTS_H_
