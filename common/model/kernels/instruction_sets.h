// Which instructions the CPU kernels use here.
#ifndef TANDEM_COMMON_MODEL_KERNELS_INSTRUCTION_SETS_H_
#define TANDEM_COMMON_MODEL_KERNELS_INSTRUCTION_SETS_H_

#include <string>

namespace tandem::model::kernels {

// The vectors' and, where the CPU multiplies bfloat16 itself, the products': "AVX2", "AVX3 AMX".
// Processes with the same ones compute the same bits, others need not.
std::string InstructionSets();

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_INSTRUCTION_SETS_H_
