#ifndef BAD_H
#define BAD_H
#endif
// #pragma once
