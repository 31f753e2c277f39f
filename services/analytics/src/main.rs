chassis::program!(analytics::main);
