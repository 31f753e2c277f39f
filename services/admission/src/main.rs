chassis::program!(admission::main);
