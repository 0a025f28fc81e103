// SPDX-License-Identifier: MIT
// Marks what the shared libraries export; everything else stays hidden inside them.
#pragma once

#define DDPRUN_API __attribute__((visibility("default")))
