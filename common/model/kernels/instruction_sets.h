// Names the instruction sets that the CPU kernels use on this machine.
#ifndef TANDEM_COMMON_MODEL_KERNELS_INSTRUCTION_SETS_H_
#define TANDEM_COMMON_MODEL_KERNELS_INSTRUCTION_SETS_H_

#include <string>

namespace tandem::model::kernels {

// Returns the vector instruction set, followed by the bfloat16 product's if the CPU has one:
// "AVX2", "AVX3 AMX". Processes with the same result compute the same bits; others may not.
std::string InstructionSets();

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_INSTRUCTION_SETS_H_
