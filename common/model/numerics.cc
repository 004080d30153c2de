#include "common/model/numerics.h"

#include <atomic>

namespace tandem::model {
namespace {

std::atomic<Numerics> current{Numerics::kFast};

}  // namespace

void SetNumerics(Numerics numerics) { current = numerics; }
Numerics CurrentNumerics() { return current; }

}  // namespace tandem::model
